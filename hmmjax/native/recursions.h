// The recursions over one video, included once per instruction set.
//
// A message is 2^scale[q] * rows[c][q], in doubles: a power of two per phase, a multiple of QUANTUM, and rows whose
// columns have sums near one. A double then holds what is 500 nats less probable than the most probable configuration
// of the same phase, and any phase however improbable. Powers change rarely, so they cost nothing.
//
// Messages of a chunk of frames are kept, and of the others only each chunk's first: the backward pass repeats the
// forward pass of its chunk, from the processor's cache.
#pragma once
#include <cstdlib>

#include "chain.h"
#include "products.h"

namespace {

using namespace hmmjax;

constexpr double QUANTUM = 128;
constexpr double LOWEST = 0x1p-192, HIGHEST = 0x1p64;  // range of column sums; beyond it they are rescaled

INLINE double get(const In& x, int64_t i) {
  return x.is_double ? static_cast<const double*>(x.data)[i] : static_cast<const float*>(x.data)[i];
}

INLINE void put(const Out& x, int64_t i, double value) {
  if (x.is_double)
    static_cast<double*>(x.data)[i] = value;
  else
    static_cast<float*>(x.data)[i] = static_cast<float>(value);
}

// Doubles, aligned to vector registers.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) { resize(size); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { free(data_); }
  void resize(int64_t size) {
    free(data_);
    data_ = static_cast<double*>(aligned_alloc(64, static_cast<size_t>(size + 8) / 8 * 64));
    if (!data_) abort();
  }
  void resize(int64_t size, double value) {
    resize(size);
    for (int64_t i = 0; i < size; ++i) data_[i] = value;
  }
  double* get() const { return data_; }
  operator double*() const { return data_; }

 private:
  double* data_ = nullptr;
};

INLINE void copy(double* to, const double* from, long size) {
  for (long i = 0; i < size; i += W) store(to + i, load(from + i));  // sizes are multiples of Lp, and so of W
}

constexpr int MAX_GROUPS = 64;

// The tools' transition as groups of blocks.
struct Plan {
  int size = 0;
  Group groups[MAX_GROUPS];
};

struct Model {
  long L, Lp, C, K, rows;  // rows: size of a message, C * Lp
  Plan steps, counts;      // for products alone, and for products with counts
  long table_size = 0;     // of all blocks, with the phases of each entry
  Buffer initial, transition, transposed, exponents, forward, backward;
  Buffer log_initial, log_transition, log_forward;

  explicit Model(const Tables& t);
  void load_blocks(const Tables& t);
  void make_plan(const Tables& t, int radix, Plan& plan) const;
};

Model::Model(const Tables& t) : L(t.phases), C(t.configs), K(t.tools) {
  Lp = (L + W - 1) / W * W;
  rows = C * Lp;
  initial.resize(rows, 0), log_initial.resize(rows, -INFINITY);
  transition.resize(L * Lp, 0), log_transition.resize(L * Lp, -INFINITY), exponents.resize(L * Lp, 0);
  transposed.resize(L * Lp, 0);
  for (long q = 0; q < L; ++q) {
    for (long c = 0; c < C; ++c) {
      initial[c * Lp + q] = ::get(t.initial, q * C + c);
      log_initial[c * Lp + q] = log(initial[c * Lp + q]);
    }
    for (long p = 0; p < L; ++p) {
      const double x = ::get(t.transition, p * L + q);
      transition[p * Lp + q] = transposed[q * Lp + p] = x;
      log_transition[p * Lp + q] = log(x);
      exponents[p * Lp + q] = x > 0 ? logb(x) : -INFINITY;
    }
  }
  load_blocks(t);
  make_plan(t, RADIX, steps);
  make_plan(t, COUNT_RADIX, counts);
}

void Model::load_blocks(const Tables& t) {
  long per_phase = 0, first = 0;
  for (int64_t b = 0; b < t.num_blocks; ++b) per_phase += t.block_sizes[b] * t.block_sizes[b];
  table_size = per_phase * Lp;
  forward.resize(table_size, 0), backward.resize(table_size, 0), log_forward.resize(table_size, -INFINITY);
  for (int64_t b = 0; b < t.num_blocks; ++b) {
    const long n = t.block_sizes[b];
    for (long i = 0; i < n; ++i)
      for (long j = 0; j < n; ++j)
        for (long q = 0; q < L; ++q) {
          const double x = ::get(t.blocks, q * per_phase + first + i * n + j);
          forward[(first + i * n + j) * Lp + q] = backward[(first + j * n + i) * Lp + q] = x;
          log_forward[(first + i * n + j) * Lp + q] = log(x);
        }
    first += n * n;
  }
}

void Model::make_plan(const Tables& t, int radix, Plan& plan) const {
  long first = 0, left = 1, right = C;
  for (int64_t b = 0; b < t.num_blocks; plan.size++) {
    Group& g = plan.groups[plan.size];
    g.n = t.block_sizes[b];
    g.dense = g.n != 2;
    if (!g.dense)
      while (g.R < radix && b + g.R < t.num_blocks && t.block_sizes[b + g.R] == 2) ++g.R;
    g.offset = first * Lp, g.left = left;
    g.forward = forward + g.offset, g.backward = backward + g.offset;
    for (int k = 0; k < g.R; ++k, ++b) left *= g.n, right /= g.n, first += g.n * g.n;
    g.right = right;
  }
}

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

// What brings a message to probabilities: weights (Lp), with sum_q weights[q] * totals[q] = 1, that are
// 2^(scale[q] - top) / value, top the largest power of a possible phase. Value is 0 if all phases are impossible.
struct Total {
  double value, top;
  Total(const double* scale, const double* totals, double* weights, long Lp) {
    V tops = fill(-INFINITY);
    for (long o = 0; o < Lp; o += W)
      tops = maximum(tops, select(load(totals + o) != V{}, load(scale + o), fill(-INFINITY)));
    top = largest(tops);
    if (top == -INFINITY) top = 0;
    V values = {};
    for (long o = 0; o < Lp; o += W) {
      const V weight = power_of_two(load(scale + o) - fill(top)), total = load(totals + o);
      store(weights + o, weight);
      values += select(total != V{}, weight * total, V{});
    }
    value = sum(values);
    for (long o = 0; o < Lp; o += W) store(weights + o, load(weights + o) / fill(value));
  }
  double log() const { return ::log(value) + top * LN2; }
};

// The steps of one video's recursions, and buffers for them.
class Steps {
 public:
  Steps(const Model& model, const Video& video)
      : m(model), v(video), weights(m.L * m.Lp), weighted_for(m.Lp), reference(m.Lp), spare(m.rows),
        tool_factors(2 * m.K + W) {
    padding.resize(m.Lp, 1);
    for (long q = 0; q < m.L; ++q) padding[q] = 0;
  }

  // Loads frame t's likelihoods; returns the logarithm of the factor that was removed from them.
  double load_frame(int64_t t, const Frame& out);

  // u: the prediction from a message before the tools move, by the transition or its transpose.
  void predict_phases(const Message& before, bool transposed, double* u, double* u_scale, double* u_totals);

  // Pulls rows back through the tools' transition, in place.
  void pull(double* rows) {
    for (int i = m.steps.size - 1; i >= 0; --i) {
      const Group& g = m.steps.groups[i];
      push_group(rows, g.dense ? spare.get() : rows, g, true, m.Lp);
      if (g.dense) copy(rows, spare, m.rows);
    }
  }

  // Message of frame 0.
  void first(const Frame& frame, const Message& out);
  // Message of a frame from that of the frame before; keeps u.
  void next(const Frame& frame, const Message& before, const Message& out, double* u, double* u_scale);
  // Brings column sums back into range.
  void rescale(const Message& x);

  const Model& m;
  const Video& v;

 private:
  void load_joint(int64_t t, const Frame& out, double& removed);

  Buffer weights, weighted_for, reference, spare, tool_factors, padding;
  int weighted = -1;  // the table of the weights: 0 the transition, 1 its transpose
};

double Steps::load_frame(int64_t t, const Frame& out) {
  double removed = 0;
  if (v.phases.is_double)
    for (long q = 0; q < m.L; ++q) out.phases[q] = static_cast<const double*>(v.phases.data)[t * m.L + q];
  else
    for (long q = 0; q < m.L; ++q) out.phases[q] = static_cast<const float*>(v.phases.data)[t * m.L + q];
  for (long q = m.L; q < m.Lp; ++q) out.phases[q] = -INFINITY;
  for (long o = 0; o < m.Lp; o += W) {
    const V x = load(out.phases + o);
    // Most phases need no power of their own.
    const V scale = round_to_integer(select(x > fill(-INFINITY), x, V{}) * fill(1 / (LN2 * QUANTUM))) * fill(QUANTUM);
    store(out.scale + o, scale);
    store(out.phases + o, exponential((x - scale * fill(LN2_HIGH)) - scale * fill(LN2_LOW)));
  }
  if (v.configs.data) {
    load_joint(t, out, removed);
  } else if (v.tools.data) {
    const long n = 2 * m.K;
    for (long k = 0; k < n; k += 2) {
      const double absent = get(v.tools, t * n + k), present = get(v.tools, t * n + k + 1);
      double top = absent > present || absent != absent ? absent : present;
      removed += top = top == -INFINITY ? 0 : top;
      tool_factors[k] = absent - top, tool_factors[k + 1] = present - top;
    }
    for (long k = n; k % W; ++k) tool_factors[k] = 0;
    for (long k = 0; k < n; k += W) store(tool_factors + k, exponential(load(tool_factors + k)));
    out.configs[0] = 1;
    long size = 1;
    for (long k = m.K - 1; k >= 0; --k, size *= 2) {
      const double absent = tool_factors[2 * k], present = tool_factors[2 * k + 1];
      for (long c = 0; c < size; ++c) out.configs[size + c] = out.configs[c] * present, out.configs[c] *= absent;
    }
  } else {
    for (long c = 0; c < m.C; ++c) out.configs[c] = 1;
  }
  return removed;
}

// Adds up logarithms first: the best configuration is the best of the sums.
void Steps::load_joint(int64_t t, const Frame& out, double& removed) {
  double* logs = out.configs;
  for (long c = 0; c < m.C; ++c) logs[c] = get(v.configs, t * m.C + c);
  if (v.tools.data)
    for (long k = 0; k < m.K; ++k)
      for (long c = 0; c < m.C; ++c) logs[c] += get(v.tools, (t * m.K + k) * 2 + ((c >> (m.K - 1 - k)) & 1));
  double top = -INFINITY;
  for (long c = 0; c < m.C; ++c) top = logs[c] > top || logs[c] != logs[c] ? logs[c] : top;
  removed += top = top == -INFINITY ? 0 : top;
  for (long c = m.C; c % W; ++c) logs[c] = 0;
  for (long c = 0; c < m.C; c += W) store(logs + c, exponential(load(logs + c) - fill(top)));
}

void Steps::predict_phases(const Message& before, bool transposed, double* u, double* u_scale, double* u_totals) {
  const long L = m.L, Lp = m.Lp;
  // Weights for the same powers of two are those of the step before.
  bool same = weighted == transposed;
  for (long o = 0; o < Lp && same; o += W) same = !any(load(before.scale + o) != load(weighted_for + o));
  if (!same) {
    const double* table = transposed ? m.transposed : m.transition;
    weighted = transposed;
    copy(weighted_for, before.scale, Lp);
    double top = -INFINITY;
    for (long p = 0; p < L; ++p) top = before.scale[p] > top ? before.scale[p] : top;
    for (long q = 0; q < Lp; ++q) reference[q] = top;
    for (long q = 0; q < L; ++q) {
      double best = -INFINITY;
      for (long p = 0; p < L; ++p) {
        const double e = before.scale[p] + (transposed ? m.exponents[q * Lp + p] : m.exponents[p * Lp + q]);
        best = e > best ? e : best;
      }
      if (best > -INFINITY) reference[q] = QUANTUM * rint(best / QUANTUM);
    }
    for (long p = 0; p < L; ++p)
      for (long o = 0; o < Lp; o += W)
        store(weights + p * Lp + o,
              load(table + p * Lp + o) * power_of_two(fill(before.scale[p]) - load(reference + o)));
  }
  copy(u_scale, reference, Lp);
  WITH_PHASES(mix, L, before.rows, weights, u, u_totals, m.C, L, Lp);
}

void Steps::first(const Frame& frame, const Message& out) {
  for (long o = 0; o < m.Lp; o += W) {
    V total = {};
    for (long c = 0; c < m.C; ++c) {
      const V y = load(m.initial + c * m.Lp + o) * (load(frame.phases + o) * fill(frame.configs[c]));
      store(out.rows + c * m.Lp + o, y);
      total += y;
    }
    store(out.totals + o, total);
    store(out.scale + o, load(frame.scale + o));
  }
  rescale(out);
}

void Steps::next(const Frame& frame, const Message& before, const Message& out, double* u, double* u_scale) {
  const long Lp = m.Lp;
  predict_phases(before, false, u, u_scale, out.totals);
  const double* x = u;
  for (int i = 0; i + 1 < m.steps.size; ++i) {
    const Group& g = m.steps.groups[i];
    double* to = g.dense && x == out.rows ? spare.get() : out.rows;
    push_group(x, to, g, false, Lp);
    x = to;
  }
  // The last products are multiplied by the frame's likelihoods at once.
  if (m.steps.size && m.steps.groups[m.steps.size - 1].dense && x == out.rows) {
    copy(spare, x, m.rows);
    x = spare;
  }
  for (long o = 0; o < Lp; o += W) {
    V total = {};
    const V phases = load(frame.phases + o);
    const auto finish = [&](V y, long c) __attribute__((always_inline)) {
      y *= phases * fill(frame.configs[c]);
      total += y;
      return y;
    };
    if (m.steps.size)
      push_group(x, out.rows, m.steps.groups[m.steps.size - 1], false, Lp, o, finish);
    else
      for (long c = 0; c < m.C; ++c) store(out.rows + c * Lp + o, finish(load(x + c * Lp + o), c));
    store(out.totals + o, total);
    store(out.scale + o, load(u_scale + o) + load(frame.scale + o));
  }
  rescale(out);
}

void Steps::rescale(const Message& x) {
  bool in_range = true, all_possible = true;
  for (long o = 0; o < m.Lp; o += W) {
    const V total = load(x.totals + o);
    in_range &= !any(((total < fill(LOWEST)) | (total > fill(HIGHEST))) & (total > V{}));
    all_possible &= !any(total + load(padding + o) <= V{});
  }
  if (in_range && all_possible) return;
  if (!in_range)
    for (long q = 0; q < m.L; ++q) {
      const double total = x.totals[q];
      if (!(total > 0) || (total >= LOWEST && total <= HIGHEST) || total > 1e300) continue;
      const double shift = QUANTUM * rint(logb(total) / QUANTUM), factor = ldexp(1.0, -static_cast<int>(shift));
      for (long c = 0; c < m.C; ++c) x.rows[c * m.Lp + q] *= factor;
      x.totals[q] *= factor;
      x.scale[q] += shift;
    }
  // An impossible phase takes another's power, so that powers stay alike.
  V tops = fill(-INFINITY);
  for (long o = 0; o < m.Lp; o += W)
    tops = maximum(tops, select(load(x.totals + o) > V{}, load(x.scale + o), fill(-INFINITY)));
  double top = largest(tops);
  if (top == -INFINITY) top = 0;
  for (long o = 0; o < m.Lp; o += W)
    store(x.scale + o, select(load(x.totals + o) > V{}, load(x.scale + o), fill(top)));
}

// Frames of a chunk: as many as a processor's cache holds, and more for long videos, of which each chunk's first message
// is kept.
int64_t chunk_size(int64_t frames, int64_t doubles_per_frame) {
  const int64_t fit = 3 * 65536 / 2 / doubles_per_frame, root = static_cast<int64_t>(sqrt(frames / 4.0));
  const int64_t size = fit > root ? fit : root;
  return size < 16 ? 16 : size > frames ? frames : size;
}

// Sums rows, which it overwrites, over the configurations with each tool absent and present; then over phases.
void put_tools(double* rows, const double* weights, const Model& m, const Out& out, int64_t t) {
  const long Lp = m.Lp;
  long size = m.C;
  for (long k = m.K - 1; k >= 0; --k, size /= 2) {
    V totals[2] = {};
    for (long o = 0; o < Lp; o += W) {
      V absent = {}, present = {};
      for (long c = 0; c < size / 2; ++c) {
        const V even = load(rows + 2 * c * Lp + o), odd = load(rows + (2 * c + 1) * Lp + o);
        absent += even, present += odd;
        store(rows + c * Lp + o, even + odd);
      }
      totals[0] += absent * load(weights + o), totals[1] += present * load(weights + o);
    }
    for (int i = 0; i < 2; ++i) put(out, (t * m.K + k) * 2 + i, sum(totals[i]));
  }
}

// The forward pass over all frames: calls visit(t, message of frame t before, message of frame t); stops if it returns
// false. Returns the log-normalizer.
template <class Visit>
INLINE double forward(Steps& steps, Visit visit) {
  const Model& m = steps.m;
  Buffer buffers(2 * Message::size(m)), likelihoods(Frame::size(m)), u(m.rows + 2 * m.Lp);
  const Frame frame(likelihoods, m);
  Message now(buffers, m), then(buffers + Message::size(m), m);
  double removed = 0;
  for (int64_t t = 0; t < steps.v.length; ++t) {
    removed += steps.load_frame(t, frame);
    if (t == 0)
      steps.first(frame, now);
    else
      steps.next(frame, then, now, u, u + m.rows);
    if (!visit(t, then, now)) return -INFINITY;
    const Message swap = now;
    now = then, then = swap;
  }
  return removed + Total(then.scale, then.totals, u, m.Lp).log();
}

double log_normalizer(const void* model, const Video& v) {
  if (v.length <= 0) return 0;
  Steps steps(*static_cast<const Model*>(model), v);
  return forward(steps, [](int64_t, const Message&, const Message&) { return true; });
}

double filter(const void* model, const Video& v, const Marginals& out) {
  const Model& m = *static_cast<const Model*>(model);
  const long L = m.L, K = m.K;
  if (v.length <= 0) return 0;
  Steps steps(m, v);
  Buffer weights(m.Lp), spare(m.rows);
  return forward(steps, [&](int64_t t, const Message&, const Message& now) {
    const Total total(now.scale, now.totals, weights, m.Lp);
    if (total.value == 0) {
      for (int64_t i = 0; i < t * L; ++i) put(out.phases, i, 0);
      for (int64_t i = 0; i < t * K * 2; ++i) put(out.tools, i, 0);
      return false;
    }
    for (long q = 0; q < L; ++q) put(out.phases, t * L + q, now.totals[q] * weights[q]);
    if (K) {
      copy(spare, now.rows, m.rows);
      put_tools(spare, weights, m, out.tools, t);
    }
    return true;
  });
}

// The backward pass: derivatives of the log-normalizer.
class Backward {
 public:
  Backward(const Model& model, const Video& video, const Gradient& gradient)
      : m(model), v(video), out(gradient), steps(m, v), buffers(2 * Message::size(m)), beta(buffers, m),
        weighted(buffers + Message::size(m), m), joint(m.rows), sums(m.Lp), scale(m.Lp), weights(m.Lp),
        ratios(m.L * m.Lp) {
    if (!out.tables) return;
    prefixes.resize(m.counts.size * m.rows);
    transition.resize(m.L * m.Lp, 0), blocks.resize(m.table_size, 0);
  }

  double run();

 private:
  // Writes the marginals of frame t from its message and beta, and multiplies beta by the frame's likelihoods.
  void write_marginals(int64_t t, const Frame& frame, const Message& alpha);
  // Moves beta to the frame before; u is the prediction from that frame's message before the tools move.
  void step(const Message& before, const double* u, const double* u_scale);
  // Counts the transition of tools while pulling the weighted message back through it.
  void count_tools(const double* u);
  void write_tables();

  const Model& m;
  const Video& v;
  const Gradient& out;
  Steps steps;
  Buffer buffers;
  Message beta, weighted;  // weighted: beta times the frame's likelihoods
  Buffer joint, sums, scale, weights, ratios, transition, blocks, prefixes;
  double total = 0, top = 0;  // of the product of message and beta
};

double Backward::run() {
  const int64_t length = v.length;
  if (length <= 0) return 0;
  const long size = Message::size(m), u_size = m.rows + m.Lp, frame_size = Frame::size(m);
  const int64_t chunk = chunk_size(length, size + u_size + frame_size), chunks = (length + chunk - 1) / chunk;
  // Of each chunk but the first, the message of the frame before it.
  Buffer starts((chunks - 1) * size), messages((chunk + 1) * size), us(chunk * u_size), frames(chunk * frame_size);
  double value = 0;
  if (chunks > 1) {
    value = forward(steps, [&](int64_t t, const Message& before, const Message&) {
      if (t % chunk == 0 && t > 0) copy(starts + (t / chunk - 1) * size, before.scale, size);
      return true;
    });
    if (value == -INFINITY) return value;
  }
  beta.rows[0] = 0;
  for (long q = 0; q < m.Lp; ++q) {
    for (long c = 0; c < m.C; ++c) beta.rows[c * m.Lp + q] = q < m.L;
    beta.totals[q] = q < m.L ? static_cast<double>(m.C) : 0, beta.scale[q] = 0;
  }
  for (int64_t i = chunks - 1; i >= 0; --i) {
    const int64_t first = i * chunk, end = first + chunk < length ? first + chunk : length;
    const auto message = [&](int64_t t) { return Message(messages + (t - first + 1) * size, m); };
    const auto frame = [&](int64_t t) { return Frame(frames + (t - first) * frame_size, m); };
    if (i > 0) copy(messages, starts + (i - 1) * size, size);
    double removed = 0;
    for (int64_t t = first; t < end; ++t) {
      removed += steps.load_frame(t, frame(t));
      double* u = us + (t - first) * u_size;
      if (t == 0)
        steps.first(frame(t), message(t));
      else
        steps.next(frame(t), message(t - 1), message(t), u, u + m.rows);
    }
    if (chunks == 1) {
      value = removed + Total(message(end - 1).scale, message(end - 1).totals, weights, m.Lp).log();
      if (value == -INFINITY) return value;
    }
    for (int64_t t = end - 1; t >= first; --t) {
      write_marginals(t, frame(t), message(t));
      double* u = us + (t - first) * u_size;
      if (t > 0) step(message(t - 1), u, u + m.rows);
    }
  }
  if (out.tables) write_tables();
  return value;
}

void Backward::write_marginals(int64_t t, const Frame& frame, const Message& alpha) {
  const long L = m.L, Lp = m.Lp;
  for (long o = 0; o < Lp; o += W) {
    V joint_total = {}, weighted_total = {};
    const V phases = load(frame.phases + o);
    for (long c = 0; c < m.C; ++c) {
      const V b = load(beta.rows + c * Lp + o), product = load(alpha.rows + c * Lp + o) * b;
      const V y = b * (phases * fill(frame.configs[c]));
      store(joint + c * Lp + o, product);
      store(weighted.rows + c * Lp + o, y);
      joint_total += product, weighted_total += y;
    }
    store(sums + o, joint_total);
    store(weighted.totals + o, weighted_total);
    store(scale + o, load(alpha.scale + o) + load(beta.scale + o));
    store(weighted.scale + o, load(beta.scale + o) + load(frame.scale + o));
  }
  const Total all(scale, sums, weights, Lp);
  total = all.value, top = all.top;
  for (long q = 0; q < L; ++q) put(out.phases, t * L + q, sums[q] * weights[q]);
  if (out.configs.data)
    for (long c = 0; c < m.C; ++c) {
      double value = 0;
      for (long q = 0; q < L; ++q) value += joint[c * Lp + q] * weights[q];
      put(out.configs, t * m.C + c, value);
    }
  if (out.tools.data) put_tools(joint, weights, m, out.tools, t);
  steps.rescale(weighted);
}

void Backward::step(const Message& before, const double* u, const double* u_scale) {
  const long L = m.L, Lp = m.Lp;
  if (out.tables) {
    // weights[q] brings products of u and the weighted message to probabilities.
    for (long o = 0; o < Lp; o += W)
      store(weights + o, power_of_two(load(u_scale + o) + load(weighted.scale + o) - fill(top)) / fill(total));
    count_tools(u);
    for (long p = 0; p < L; ++p)
      for (long o = 0; o < Lp; o += W)
        store(ratios + p * Lp + o, load(weights + o) * power_of_two(fill(before.scale[p]) - load(u_scale + o)));
    WITH_PHASES(count_phases, L, before.rows, weighted.rows, ratios, transition, m.C, L, Lp);
  } else {
    steps.pull(weighted.rows);
  }
  steps.predict_phases(weighted, true, beta.rows, beta.scale, beta.totals);
  steps.rescale(beta);
}

void Backward::count_tools(const double* u) {
  const int n = m.counts.size;
  for (int i = 0; i + 1 < n; ++i)
    push_group(i ? prefixes + i * m.rows : u, prefixes + (i + 1) * m.rows, m.counts.groups[i], false, m.Lp);
  for (int i = n - 1; i >= 0; --i) {
    const Group& g = m.counts.groups[i];
    const double* before = i ? prefixes + i * m.rows : u;
    double* counts = blocks + g.offset;
    if (g.dense) {
      count_dense(before, weighted.rows, weights, counts, g, m.Lp);
      push_group(weighted.rows, joint, g, true, m.Lp);
      copy(weighted.rows, joint, m.rows);
    } else if (g.R == 1) {
      pull_pairs<1>(before, weighted.rows, weights, counts, g, m.Lp);
    } else {
      pull_pairs<2>(before, weighted.rows, weights, counts, g, m.Lp);
    }
  }
}

void Backward::write_tables() {
  const long L = m.L, Lp = m.Lp, per_phase = m.table_size / Lp;
  for (long o = 0; o < Lp; o += W)
    store(weights + o, power_of_two(load(weighted.scale + o) - fill(top)) / fill(total));
  for (long q = 0; q < L; ++q) {
    for (long c = 0; c < m.C; ++c) put(out.initial, q * m.C + c, weighted.rows[c * Lp + q] * weights[q]);
    for (long p = 0; p < L; ++p) put(out.transition, p * L + q, transition[p * Lp + q]);
    for (long i = 0; i < per_phase; ++i) put(out.blocks, q * per_phase + i, blocks[i * Lp + q]);
  }
}

double gradient(const void* model, const Video& v, const Gradient& out) {
  return Backward(*static_cast<const Model*>(model), v, out).run();
}

// The most probable path. Scores are logarithms, in doubles.
class BestPath {
 public:
  BestPath(const Model& model, const Video& video)
      : m(model), v(video), frame_configs(m.C), frame_phases(m.Lp), spare(m.rows), column(m.C), tools(m.C) {}

  double run(int32_t* path_phases, int32_t* path_configs);

 private:
  void load_frame(int64_t t);
  // Scores of frame 0.
  void first(double* score);
  // Scores of frame t from those of the frame before, and u, the best over the phase before.
  void next(int64_t t, const double* before, double* u, double* score);
  // Logarithms of the probability that each configuration is followed by (q, c), in column.
  void fill_column(long q, long c);
  // The best state of the frame before, from its scores and u.
  void step_back(const double* u, const double* score, long& q, long& c);

  const Model& m;
  const Video& v;
  Buffer frame_configs, frame_phases, spare, column, tools;
};

void BestPath::load_frame(int64_t t) {
  for (long q = 0; q < m.L; ++q) frame_phases[q] = get(v.phases, t * m.L + q);
  for (long q = m.L; q < m.Lp; ++q) frame_phases[q] = -INFINITY;
  for (long c = 0; c < m.C; ++c) frame_configs[c] = v.configs.data ? get(v.configs, t * m.C + c) : 0;
  if (!v.tools.data) return;
  tools[0] = 0;
  long size = 1;
  for (long k = m.K - 1; k >= 0; --k, size *= 2) {
    const double absent = get(v.tools, (t * m.K + k) * 2), present = get(v.tools, (t * m.K + k) * 2 + 1);
    for (long c = 0; c < size; ++c) tools[size + c] = tools[c] + present, tools[c] += absent;
  }
  for (long c = 0; c < m.C; ++c) frame_configs[c] += tools[c];
}

void BestPath::first(double* score) {
  load_frame(0);
  for (long o = 0; o < m.Lp; o += W)
    for (long c = 0; c < m.C; ++c)
      store(score + c * m.Lp + o,
            load(m.log_initial + c * m.Lp + o) + (load(frame_phases + o) + fill(frame_configs[c])));
}

void BestPath::next(int64_t t, const double* before, double* u, double* score) {
  load_frame(t);
  WITH_PHASES(mix_max, m.L, before, m.log_transition, u, m.C, m.L, m.Lp);
  const int n = m.steps.size;
  for (long o = 0; o < m.Lp; o += W) {
    const V phases = load(frame_phases + o);
    const auto same = [](V y, long) __attribute__((always_inline)) { return y; };
    const auto finish = [&](V y, long c) __attribute__((always_inline)) { return y + (phases + fill(frame_configs[c])); };
    const double* x = u;
    for (int i = 0; i < n; ++i) {
      const Group& g = m.steps.groups[i];
      double* to = g.dense && x == score ? spare.get() : score;
      const double* logs = m.log_forward + g.offset;
      if (i + 1 < n)
        push_max_group(x, to, logs, g, m.Lp, o, same);
      else
        push_max_group(x, to, logs, g, m.Lp, o, finish);
      x = to;
    }
    if (n == 0)
      for (long c = 0; c < m.C; ++c) store(score + c * m.Lp + o, finish(load(u + c * m.Lp + o), c));
    else if (x != score)
      for (long c = 0; c < m.C; ++c) store(score + c * m.Lp + o, load(x + c * m.Lp + o));
  }
}

void BestPath::fill_column(long q, long c) {
  column[0] = 0;
  long size = 1, at = 0;
  for (int i = 0; i < m.steps.size; ++i) {
    const Group& g = m.steps.groups[i];
    const long n = g.n;
    for (int k = 0; k < g.R; ++k, at += n * n) {
      const long own = c / (m.C / size / n) % n;
      const double* block = m.log_forward + at * m.Lp;
      for (long s = size - 1; s >= 0; --s) {
        const double x = column[s];
        for (long j = 0; j < n; ++j) column[s * n + j] = x + block[(j * n + own) * m.Lp + q];
      }
      size *= n;
    }
  }
}

void BestPath::step_back(const double* u, const double* score, long& q, long& c) {
  fill_column(q, c);
  double top = -INFINITY;
  for (long j = 0; j < m.C; ++j) {
    const double x = u[j * m.Lp + q] + column[j];
    if (x > top) top = x, c = j;
  }
  const long next = q;
  top = -INFINITY;
  for (long p = 0; p < m.L; ++p) {
    const double x = score[c * m.Lp + p] + m.log_transition[p * m.Lp + next];
    if (x > top) top = x, q = p;
  }
}

double BestPath::run(int32_t* path_phases, int32_t* path_configs) {
  const int64_t length = v.length;
  if (length <= 0) return 0;
  const long L = m.L, Lp = m.Lp, rows = m.rows;
  const int64_t chunk = chunk_size(length, 2 * rows), chunks = (length + chunk - 1) / chunk;
  // Of each chunk but the first, the scores of the frame before it, relative to the best.
  Buffer starts((chunks - 1) * rows), scores((chunk + 1) * rows), us(chunk * rows);
  const auto run_chunk = [&](int64_t i) {
    const int64_t begin = i * chunk, end = begin + chunk < length ? begin + chunk : length;
    if (i > 0) copy(scores, starts + (i - 1) * rows, rows);
    for (int64_t t = begin; t < end; ++t) {
      double* score = scores + (t - begin + 1) * rows;
      if (t == 0)
        first(score);
      else
        next(t, score - rows, us + (t - begin) * rows, score);
    }
    return scores + (end - begin) * rows;
  };
  double removed = 0;
  const double* last = nullptr;
  for (int64_t i = 0; i < chunks; ++i) {
    last = run_chunk(i);
    if (i + 1 == chunks) break;
    double top = -INFINITY;
    for (long x = 0; x < rows; ++x) top = last[x] > top ? last[x] : top;
    if (top == -INFINITY) return top;
    removed += top;
    for (long x = 0; x < rows; ++x) starts[i * rows + x] = last[x] - top;
  }
  long q = 0, c = 0;
  for (long j = 0; j < m.C; ++j)
    for (long p = 0; p < L; ++p)
      if (last[j * Lp + p] > last[c * Lp + q]) q = p, c = j;
  const double value = last[c * Lp + q];
  if (value == -INFINITY) return value;
  for (int64_t i = chunks - 1; i >= 0; --i) {
    const int64_t begin = i * chunk, end = begin + chunk < length ? begin + chunk : length;
    if (i + 1 < chunks) run_chunk(i);
    for (int64_t t = end - 1; t >= begin; --t) {
      path_phases[t] = static_cast<int32_t>(q), path_configs[t] = static_cast<int32_t>(c);
      if (t > 0) step_back(us + (t - begin) * rows, scores + (t - begin) * rows, q, c);
    }
  }
  return removed + value;
}

double viterbi(const void* model, const Video& v, int32_t* phases, int32_t* configs) {
  return BestPath(*static_cast<const Model*>(model), v).run(phases, configs);
}

void* prepare(const Tables& tables) { return new Model(tables); }

void release(void* model) { delete static_cast<Model*>(model); }

constexpr Recursions recursions(const char* name) {
  return {name, prepare, release, log_normalizer, gradient, filter, viterbi};
}

}  // namespace
