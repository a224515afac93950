// Messages of the recursions, and the transition of phases between them.
//
// A message is 2^scale[q] * rows[c][q], in doubles: a power of two per phase, a multiple of QUANTUM, and rows whose
// columns have sums near one. A double then holds what is 500 nats less probable than the most probable configuration
// of the same phase, and any phase however improbable. Powers change rarely, so they cost nothing.
#pragma once
#include "products.h"

namespace {

constexpr double QUANTUM = 128;
constexpr double LOWEST = 0x1p-192, HIGHEST = 0x1p64;  // range of column sums; beyond it they are rescaled

// A frame's likelihoods: factors of configurations (C), and of phases (Lp) with a power of two each (Lp).
struct Frame {
  double *configs, *phases, *scale;
  static long size(const Model& m) { return (m.C + W - 1) / W * W + 2 * m.Lp; }
  Frame(double* at, const Model& m) : configs(at + 2 * m.Lp), phases(at), scale(at + m.Lp) {}
};

// A message: per phase a power of two and the sum of its column, and rows (C, Lp).
struct Message {
  double *scale, *totals, *rows;
  static long size(const Model& m) { return m.rows + 2 * m.Lp; }
  Message(double* at, const Model& m) : scale(at), totals(at + m.Lp), rows(at + 2 * m.Lp) {}
};

// Weights of impossible phases may be too large for a double; their products with zero are to be zero.
INLINE V bounded(V weight) { return select(weight > fill(1e250), fill(1e250), weight); }

// Powers of two of phases relative to the largest one of a possible phase; most often they are those of the call before.
class Relative {
 public:
  explicit Relative(long Lp) : powers(Lp), scale_(Lp), possible_(Lp) { scale_.resize(Lp, NAN); }

  // totals (Lp): zero for impossible phases.
  void load_for(const double* scale, const double* totals, long Lp) {
    I changed = {};
    for (long o = 0; o < Lp; o += W)
      changed |= (load(scale + o) != load(scale_ + o)) | ((load(totals + o) != V{}) ^ (I)load(possible_ + o));
    if (any(changed)) rebuild(scale, totals, Lp);
  }

  double top;
  Buffer powers;

 private:
  void rebuild(const double* scale, const double* totals, long Lp) {
    V tops = fill(-INFINITY);
    for (long o = 0; o < Lp; o += W) {
      const I possible = load(totals + o) != V{};
      store(scale_ + o, load(scale + o)), store(possible_ + o, (V)possible);
      tops = maximum(tops, select(possible, load(scale + o), fill(-INFINITY)));
    }
    top = largest(tops);
    if (top == -INFINITY) top = 0;
    for (long o = 0; o < Lp; o += W) store(powers + o, power_of_two(load(scale + o) - fill(top)));
  }

  Buffer scale_, possible_;
};

// What brings a message to probabilities: weights (Lp), with sum_q weights[q] * totals[q] = 1, that are
// 2^(scale[q] - top) / value, top the largest power of a possible phase. Value is 0 if all phases are impossible.
struct Total {
  double value, top;
  Total(Relative& relative, const double* scale, const double* totals, double* weights, long Lp) {
    relative.load_for(scale, totals, Lp);
    top = relative.top;
    V values = {};
    for (long o = 0; o < Lp; o += W) values += load(relative.powers + o) * load(totals + o);
    value = sum(values);
    for (long o = 0; o < Lp; o += W) store(weights + o, bounded(load(relative.powers + o) / fill(value)));
  }
  double log() const { return ::log(value) + top * LN2; }
};

// The transition of phases (or its transpose) between messages with powers of two: 2^reference[q] table[p][q] is the
// transition times 2^scale[p], and powers[p][q] is 2^(scale[p] - reference[q]).
class Scaled {
 public:
  Scaled(const Model& model, bool transposed)
      : reference(model.Lp), m(model), transposed_(transposed) {
    scale_.resize(m.Lp, NAN), table.resize(m.Lp * m.Lp, 0), powers.resize(m.L * m.Lp, 0);
  }

  // For messages of the given powers (Lp); most often they are those of the call before.
  void load_for(const double* scale) {
    load_for(scale, [] {});
  }
  // Calls before_change() before others than those of the call before are loaded.
  template <class BeforeChange>
  INLINE void load_for(const double* scale, BeforeChange before_change) {
    I changed = {};
    for (long o = 0; o < m.Lp; o += W) changed |= load(scale + o) != load(scale_ + o);
    if (any(changed)) before_change(), rebuild(scale);
  }

  Buffer reference, table, powers;

 private:
  void rebuild(const double* scale);

  const Model& m;
  bool transposed_;
  Buffer scale_;
};

void Scaled::rebuild(const double* scale) {
  const long L = m.L, Lp = m.Lp;
  copy(scale_, scale, Lp);
  double top = -INFINITY;
  for (long p = 0; p < L; ++p) top = scale[p] > top ? scale[p] : top;
  for (long q = 0; q < Lp; ++q) reference[q] = top;
  for (long q = 0; q < L; ++q) {
    double best = -INFINITY;
    for (long p = 0; p < L; ++p) {
      const double e = scale[p] + m.exponents[transposed_ ? q * Lp + p : p * Lp + q];
      best = e > best ? e : best;
    }
    if (best > -INFINITY) reference[q] = QUANTUM * rint(best / QUANTUM);
  }
  const double* from = transposed_ ? m.transposed : m.transition;
  for (long p = 0; p < L; ++p)
    for (long o = 0; o < Lp; o += W) {
      const V power = power_of_two(fill(scale[p]) - load(reference + o));
      store(powers + p * Lp + o, power);
      store(table + p * Lp + o, load(from + p * Lp + o) * power);
    }
}

// Gives impossible phases the lowest power of the others. A higher one would raise the reference of the phases on the other
// side of a transition above what the possible phases add to them, which would be lost.
//
// is_possible(o): of the W phases from o on, false in padding.
template <class IsPossible>
INLINE void level(double* scale, const Model& m, IsPossible is_possible) {
  I impossible = {};
  for (long o = 0; o < m.Lp; o += W) impossible |= ~is_possible(o) & (I)(load(m.inside + o) != V{});
  if (!any(impossible)) return;
  V lowest = fill(INFINITY);
  for (long o = 0; o < m.Lp; o += W) lowest = -maximum(-lowest, select(is_possible(o), -load(scale + o), fill(-INFINITY)));
  double least = -largest(-lowest);
  if (least == INFINITY) least = 0;
  for (long o = 0; o < m.Lp; o += W) store(scale + o, select(is_possible(o), load(scale + o), fill(least)));
}

// Frames of a chunk: all if they take less memory than threads keep (Spares). Otherwise as many as a processor's second
// cache holds, and more for long videos, of which each chunk's first message is kept.
int64_t chunk_size(int64_t frames, int64_t doubles_per_frame) {
  if (frames * doubles_per_frame <= 3 << 18) return frames;
  const int64_t fit = 3 * 65536 / 2 / doubles_per_frame, root = static_cast<int64_t>(sqrt(frames / 4.0));
  const int64_t size = fit > root ? fit : root;
  return size < 16 ? 16 : size > frames ? frames : size;
}

}  // namespace
