// The recursions for models whose tools may not switch, or whose phases have tiny probabilities: doubles with a power of two each, so that no number is ever lost.
//
// In the other recursions the configurations of a phase share a power, and one that becomes 500 nats less probable than
// another is lost. That matters if no configuration leads back to it, and later observations allow no other. These take
// ten times as long; without range to think of, they are the plainest form of the recursions.
#pragma once
#include "messages.h"

namespace {

constexpr double FAR_NATS = 200;
constexpr double WIDE_QUANTUM = 512, NOTHING = -1e30;  // NOTHING: the power of zero

// value * 2^power, power a multiple of WIDE_QUANTUM, value below 2^256 and, unless zero, not much less than 2^-256.
struct Wide {
  V value, power;

  INLINE static Wide of(V value, V power) {
    const I big = value >= fill(0x1p256), small = (value < fill(0x1p-256)) & (value > V{});
    value *= select(big, fill(0x1p-512), select(small, fill(0x1p512), fill(1)));
    power += select(big, fill(WIDE_QUANTUM), select(small, fill(-WIDE_QUANTUM), V{}));
    return {value, select(value == V{}, fill(NOTHING), power)};
  }
  INLINE static Wide of(V x) {
    const Wide once = of(x, V{});
    return of(once.value, once.power);  // for denormal numbers
  }
  // exp(x).
  INLINE static Wide exp_of(V x) {
    const V n = round_to_integer(select(x > fill(-INFINITY), x, V{}) * fill(1 / (LN2 * WIDE_QUANTUM))) * fill(WIDE_QUANTUM);
    return of(exponential((x - n * fill(LN2_HIGH)) - n * fill(LN2_LOW)), n);
  }
  INLINE Wide operator*(const Wide& other) const { return of(value * other.value, power + other.power); }
  INLINE void operator+=(const Wide& other) {
    const V top = maximum(power, other.power);
    value = value * factor(power - top) + other.value * factor(other.power - top);
    power = top;
  }
  // value * 2^power / (the same of a total), as doubles.
  INLINE V over(double total, double total_power) const {
    // By halves, because the power alone may be out of range.
    const V half = power_of_two((power - fill(total_power)) * fill(.5));
    return value / fill(total) * half * half;
  }

 private:
  INLINE static V factor(V difference) {
    return select(difference == V{}, fill(1), select(difference == fill(-WIDE_QUANTUM), fill(0x1p-512), V{}));
  }
};

// An array of such numbers.
struct WideRows {
  Buffer values, powers;
  explicit WideRows(int64_t size) { values.resize(size, 0), powers.resize(size, NOTHING); }
  WideRows() = default;
  INLINE Wide get(int64_t at) const { return {load(values + at), load(powers + at)}; }
  INLINE Wide broadcast(int64_t at) const { return {fill(values[at]), fill(powers[at])}; }
  INLINE void set(int64_t at, const Wide& x) { store(values + at, x.value), store(powers + at, x.power); }
};

class WideVideo {
 public:
  WideVideo(const Model& model, const Video& video)
      : m(model), v(video), transition(m.L * m.Lp), transposed(m.L * m.Lp), blocks(m.table_size), initial(m.rows),
        configs(m.C + W), phases(m.Lp), spare(m.rows), moved(m.rows), logs(m.C + W) {
    load_table(m.transition, transition, m.L * m.Lp), load_table(m.transposed, transposed, m.L * m.Lp);
    load_table(m.forward, blocks, m.table_size), load_table(m.initial, initial, m.rows);
  }

  double filter(const Marginals& out);
  double gradient(const Gradient& out);

 private:
  static void load_table(const double* from, WideRows& to, long size) {
    for (long i = 0; i < size; i += W) to.set(i, Wide::of(load(from + i)));
  }
  void load_frame(int64_t t);
  void weigh(WideRows& x, int64_t at, const WideRows& y, int64_t from);
  void mix(const WideRows& x, int64_t at, const WideRows& table, WideRows& out, int64_t to);
  // Multiplies by the block b of size n, `first` numbers into the tables; right: configurations on the right.
  void push(WideRows& x, long n, long first, long right, bool transposed);
  template <class Body>
  void for_each_block(bool reversed, Body body);
  void next(int64_t t, const WideRows& x, int64_t before, WideRows& out, int64_t now);
  void total_of(const WideRows& x, int64_t at);
  void write(const double* rows, const Out& to_phases, const Out& to_tools, const Out& to_configs, int64_t t) const;
  double log_total() const { return log(total) + total_power * LN2; }

  const Model& m;
  const Video& v;
  WideRows transition, transposed, blocks, initial, configs, phases, spare, moved;
  Buffer logs;
  double total = 0, total_power = 0;
};

void WideVideo::load_frame(int64_t t) {
  for (long q = 0; q < m.Lp; ++q) phases.values[q] = q < m.L ? get(v.phases, t * m.L + q) : -INFINITY;
  for (long c = 0; c < m.C + W; ++c) logs[c] = v.configs.data && c < m.C ? get(v.configs, t * m.C + c) : 0;
  for (long k = 0; v.tools.data && k < m.K; ++k)
    for (long c = 0; c < m.C; ++c) logs[c] += get(v.tools, (t * m.K + k) * 2 + ((c >> (m.K - 1 - k)) & 1));
  for (long o = 0; o < m.Lp; o += W) phases.set(o, Wide::exp_of(load(phases.values + o)));
  for (long c = 0; c < m.C; c += W) configs.set(c, Wide::exp_of(load(logs + c)));
}

// x = y times the frame's likelihoods.
void WideVideo::weigh(WideRows& x, int64_t at, const WideRows& y, int64_t from) {
  for (long c = 0; c < m.C; ++c)
    for (long o = 0; o < m.Lp; o += W)
      x.set(at + c * m.Lp + o, y.get(from + c * m.Lp + o) * (phases.get(o) * configs.broadcast(c)));
}

void WideVideo::mix(const WideRows& x, int64_t at, const WideRows& table, WideRows& out, int64_t to) {
  for (long c = 0; c < m.C; ++c)
    for (long o = 0; o < m.Lp; o += W) {
      Wide sum = {V{}, fill(NOTHING)};
      for (long p = 0; p < m.L; ++p) sum += x.broadcast(at + c * m.Lp + p) * table.get(p * m.Lp + o);
      out.set(to + c * m.Lp + o, sum);
    }
}

void WideVideo::push(WideRows& x, long n, long first, long right, bool transposed) {
  for (long c = 0; c < m.C; ++c) {
    const long j = c / right % n, base = c - j * right;
    for (long o = 0; o < m.Lp; o += W) {
      Wide sum = {V{}, fill(NOTHING)};
      for (long i = 0; i < n; ++i)
        sum += x.get((base + i * right) * m.Lp + o) * blocks.get((first + (transposed ? j * n + i : i * n + j)) * m.Lp + o);
      spare.set(c * m.Lp + o, sum);
    }
  }
  copy(x.values, spare.values, m.rows), copy(x.powers, spare.powers, m.rows);
}

// Calls body(index, size, first number in the tables, configurations on the right) for every block.
template <class Body>
void WideVideo::for_each_block(bool reversed, Body body) {
  for (long step = 0; step < m.num_blocks; ++step) {
    const long b = reversed ? m.num_blocks - 1 - step : step;
    long first = 0, right = m.C;
    for (long i = 0; i < b; ++i) first += m.block_sizes[i] * m.block_sizes[i], right /= m.block_sizes[i];
    body(b, m.block_sizes[b], first, right / m.block_sizes[b]);
  }
}

void WideVideo::next(int64_t t, const WideRows& x, int64_t before, WideRows& out, int64_t now) {
  load_frame(t);
  if (t == 0) return weigh(out, now, initial, 0);
  WideRows& u = moved;
  mix(x, before, transition, u, 0);
  for_each_block(false, [&](long, long n, long first, long right) { push(u, n, first, right, false); });
  weigh(out, now, u, 0);
}

void WideVideo::total_of(const WideRows& x, int64_t at) {
  Wide sum = {V{}, fill(NOTHING)};
  for (long i = 0; i < m.rows; i += W) sum += x.get(at + i);
  total_power = largest(sum.power);
  total = ::sum(sum.value * power_of_two(sum.power - fill(total_power)));
}

// Writes the marginals of frame t from the probabilities of its states.
void WideVideo::write(const double* rows, const Out& to_phases, const Out& to_tools, const Out& to_configs, int64_t t) const {
  Buffer by_config(m.C);
  for (long c = 0; c < m.C; ++c) {
    by_config[c] = 0;
    for (long q = 0; q < m.L; ++q) by_config[c] += rows[c * m.Lp + q];
    if (to_configs.data) put(to_configs, t * m.C + c, by_config[c]);
  }
  for (long q = 0; to_phases.data && q < m.L; ++q) {
    double x = 0;
    for (long c = 0; c < m.C; ++c) x += rows[c * m.Lp + q];
    put(to_phases, t * m.L + q, x);
  }
  for (long k = 0; to_tools.data && k < m.K; ++k) {
    double states[2] = {};
    for (long c = 0; c < m.C; ++c) states[c >> (m.K - 1 - k) & 1] += by_config[c];
    for (int i = 0; i < 2; ++i) put(to_tools, (t * m.K + k) * 2 + i, states[i]);
  }
}

double WideVideo::filter(const Marginals& out) {
  WideRows x(2 * m.rows);
  Buffer rows(m.rows);
  for (int64_t t = 0; t < v.length; ++t) {
    const long now = t % 2 ? m.rows : 0;
    next(t, x, m.rows - now, x, now);
    total_of(x, now);
    if (total == 0) {
      for (int64_t i = 0; i < t * m.L; ++i) put(out.phases, i, 0);
      for (int64_t i = 0; i < t * m.K * 2; ++i) put(out.tools, i, 0);
      return -INFINITY;
    }
    for (long i = 0; i < m.rows; i += W) store(rows + i, x.get(now + i).over(total, total_power));
    write(rows, out.phases, m.K ? out.tools : Out{}, {}, t);
  }
  return log_total();
}

double WideVideo::gradient(const Gradient& out) {
  const int64_t length = v.length, root = static_cast<int64_t>(sqrt(length)), chunk = root < 16 ? 16 : root;
  const int64_t chunks = (length + chunk - 1) / chunk;
  const long L = m.L, Lp = m.Lp, rows = m.rows;
  WideRows starts(chunks * rows), messages((chunk + 1) * rows), after(rows), pulled(rows), prefixes((m.num_blocks + 1) * rows);
  Buffer probabilities(rows), moves, steps;
  moves.resize(L * Lp, 0), steps.resize(m.table_size, 0);
  const auto run_chunk = [&](int64_t i) {
    if (i > 0) copy(messages.values, starts.values + i * rows, rows), copy(messages.powers, starts.powers + i * rows, rows);
    for (int64_t t = i * chunk; t < length && t < (i + 1) * chunk; ++t)
      next(t, messages, (t - i * chunk) * rows, messages, (t - i * chunk + 1) * rows);
  };
  for (int64_t i = 0; i < chunks; ++i) {
    run_chunk(i);
    if (i + 1 == chunks) break;
    copy(starts.values + (i + 1) * rows, messages.values + chunk * rows, rows);
    copy(starts.powers + (i + 1) * rows, messages.powers + chunk * rows, rows);
  }
  total_of(messages, (length - (chunks - 1) * chunk) * rows);
  if (!(total > 0)) return log_total();
  for (long c = 0; c < m.C; ++c)
    for (long o = 0; o < Lp; o += W) after.set(c * Lp + o, Wide::of(fill(1)));
  for (int64_t i = chunks - 1; i >= 0; --i) {
    if (i + 1 < chunks) run_chunk(i);
    for (int64_t t = (i + 1) * chunk < length ? (i + 1) * chunk - 1 : length - 1; t >= i * chunk; --t) {
      const int64_t before = (t - i * chunk) * rows;
      for (long x = 0; x < rows; x += W)
        store(probabilities + x, (messages.get(before + rows + x) * after.get(x)).over(total, total_power));
      write(probabilities, out.phases, out.tools, out.configs, t);
      load_frame(t);
      weigh(pulled, 0, after, 0);
      if (t == 0) break;
      mix(messages, before, transition, spare, 0);
      copy(prefixes.values, spare.values, rows), copy(prefixes.powers, spare.powers, rows);
      WideRows& u = moved;
      copy(u.values, spare.values, rows), copy(u.powers, spare.powers, rows);
      if (out.tables)
        for_each_block(false, [&](long b, long n, long first, long right) {
          push(u, n, first, right, false);
          copy(prefixes.values + (b + 1) * rows, u.values, rows), copy(prefixes.powers + (b + 1) * rows, u.powers, rows);
        });
      for_each_block(true, [&](long b, long n, long first, long right) {
        for (long c = 0; out.tables && c < m.C; ++c)
          for (long j = 0; j < n; ++j)
            for (long o = 0; o < Lp; o += W) {
              const long own = c / right % n, to = (first + own * n + j) * Lp + o;
              const Wide pair = prefixes.get(b * rows + c * Lp + o) * pulled.get((c + (j - own) * right) * Lp + o);
              store(steps + to, load(steps + to) + pair.over(total, total_power));
            }
        push(pulled, n, first, right, true);
      });
      for (long p = 0; out.tables && p < L; ++p)
        for (long o = 0; o < Lp; o += W) {
          Wide sum = {V{}, fill(NOTHING)};
          for (long c = 0; c < m.C; ++c) sum += messages.broadcast(before + c * Lp + p) * pulled.get(c * Lp + o);
          store(moves + p * Lp + o, load(moves + p * Lp + o) + sum.over(total, total_power));
        }
      mix(pulled, 0, transposed, after, 0);
    }
  }
  if (!out.tables) return log_total();
  for (long c = 0; c < m.C; ++c)
    for (long o = 0; o < Lp; o += W) store(probabilities + c * Lp + o, pulled.get(c * Lp + o).over(total, total_power));
  for (long q = 0; q < L; ++q) {
    for (long c = 0; c < m.C; ++c) put(out.initial, q * m.C + c, probabilities[c * Lp + q]);
    for (long p = 0; p < L; ++p) put(out.transition, p * L + q, moves[p * Lp + q]);
    for (long x = 0; x < m.table_size / Lp; ++x) put(out.blocks, q * (m.table_size / Lp) + x, steps[x * Lp + q]);
  }
  return log_total();
}

// Whether the configurations in which a phase may begin are so much less probable in the first frame than another
// configuration that they are lost, because all configurations of a frame share a power.
bool starts_far(const Model& m, const Video& v) {
  if (!m.start_has_zeros || !(v.tools.data || v.configs.data)) return false;
  Buffer logs(m.C);
  double best = -INFINITY;
  for (long c = 0; c < m.C; ++c) {
    logs[c] = v.configs.data ? get(v.configs, c) : 0;
    for (long k = 0; v.tools.data && k < m.K; ++k) logs[c] += get(v.tools, k * 2 + ((c >> (m.K - 1 - k)) & 1));
    best = logs[c] > best ? logs[c] : best;
  }
  for (long q = 0; q < m.L; ++q) {
    double top = -INFINITY;
    for (long c = 0; c < m.C; ++c)
      if (m.initial[c * m.Lp + q] > 0 && logs[c] > top) top = logs[c];
    if (top > -INFINITY && best - top > FAR_NATS) return true;
  }
  return false;
}

}  // namespace
