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

// Doubles, aligned to vector registers and zero at first.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) { resize(size); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { free(data_); }
  void resize(int64_t size) {
    free(data_);
    const size_t bytes = (static_cast<size_t>(size > 0 ? size : 1) * sizeof(double) + 63) / 64 * 64;
    data_ = static_cast<double*>(aligned_alloc(64, bytes));
    if (!data_) abort();
    memset(data_, 0, bytes);
  }
  double* get() const { return data_; }
  operator double*() const { return data_; }

 private:
  double* data_ = nullptr;
};

constexpr int MAX_GROUPS = 64;

struct Model {
  long L, Lp, C, K, rows;  // rows: size of a message, C * Lp
  int num_groups = 0;
  Group groups[MAX_GROUPS];
  long table_size = 0;  // of all blocks, with a vector of phases per entry
  Buffer initial, transition, transposed, exponents, forward, backward;
  Buffer log_initial, log_transition, log_forward;
  bool in_place = true;  // no dense group

  explicit Model(const Tables& t);
  void load_blocks(const Tables& t);
};

Model::Model(const Tables& t) : L(t.phases), C(t.configs), K(t.tools) {
  Lp = (L + W - 1) / W * W;
  rows = C * Lp;
  initial.resize(rows), log_initial.resize(rows);
  transition.resize(L * Lp), log_transition.resize(L * Lp), exponents.resize(L * Lp);
  transposed.resize(L * Lp);
  for (long i = 0; i < rows; ++i) log_initial[i] = -INFINITY;
  for (long i = 0; i < L * Lp; ++i) log_transition[i] = -INFINITY;
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
}

void Model::load_blocks(const Tables& t) {
  long per_phase = 0;
  for (int64_t b = 0; b < t.num_blocks; ++b) per_phase += t.block_sizes[b] * t.block_sizes[b];
  table_size = per_phase * Lp;
  forward.resize(table_size), backward.resize(table_size), log_forward.resize(table_size);
  for (long i = 0; i < table_size; ++i) log_forward[i] = -INFINITY;
  long first = 0, left = 1, right = C;
  for (int64_t b = 0; b < t.num_blocks;) {
    const long n = t.block_sizes[b];
    Group g;
    g.dense = n != 2;
    g.n = n;
    if (!g.dense)
      while (g.R < COUNT_RADIX && b + g.R < t.num_blocks && t.block_sizes[b + g.R] == 2) ++g.R;
    g.forward = forward + first * Lp, g.backward = backward + first * Lp;
    for (int k = 0; k < g.R; ++k, ++b) {
      right /= n;
      for (long i = 0; i < n; ++i)
        for (long j = 0; j < n; ++j)
          for (long q = 0; q < L; ++q) {
            const double x = ::get(t.blocks, q * per_phase + first + i * n + j);
            forward[(first + i * n + j) * Lp + q] = backward[(first + j * n + i) * Lp + q] = x;
            log_forward[(first + i * n + j) * Lp + q] = log(x);
          }
      first += n * n;
    }
    g.left = left, g.right = right;
    for (int k = 0; k < g.R; ++k) left *= n;
    in_place &= !g.dense;
    groups[num_groups++] = g;
  }
}

// A message: rows (C, Lp), and per phase a power of two and the sum of its column.
struct Message {
  double *rows, *scale, *totals;
  static long size(const Model& m) { return m.rows + 2 * m.Lp; }
  Message(double* at, const Model& m) : rows(at), scale(at + m.rows), totals(at + m.rows + m.Lp) {}
};

INLINE void copy(double* to, const double* from, long size) { memcpy(to, from, size * sizeof(double)); }

// Buffers for the steps of one video, and the steps.
class Steps {
 public:
  Steps(const Model& model, const Video& video)
      : m(model), v(video), factors(m.C), phase_factors(m.Lp), phase_scale(m.Lp), weights(m.L * m.Lp), weighted_for(m.Lp),
        reference(m.Lp), spare(m.rows), tool_logs(2 * m.K + 1), zeros(m.Lp) {}

  // Loads frame t's likelihoods; returns the logarithm of the factor that was removed from them.
  double load_frame(int64_t t);

  // The prediction before the tools' transition: u from the message of the frame before.
  void predict_phases(const Message& before, const double* table, double* u, double* u_scale, double* u_totals);

  // Pushes rows through the tools' transition in all phases, in place.
  void push(double* rows, bool backward) {
    for (int g = 0; g < m.num_groups; ++g) {
      const Group& group = m.groups[backward ? m.num_groups - 1 - g : g];
      if (group.dense) {
        push_group(rows, spare, group, backward, m.Lp);
        copy(rows, spare, m.rows);
      } else {
        push_group(rows, rows, group, backward, m.Lp);
      }
    }
  }

  // Multiplies by the frame's likelihoods, and adds up columns.
  void multiply(const double* x, const double* x_scale, const Message& out);

  // Brings column sums back into range.
  void rescale(const Message& x);

  // Message of frame 0, which must be loaded.
  void first(const Message& out) {
    multiply(m.initial, zeros, out);
    rescale(out);
  }

  // Message of frame t from that of the frame before; the frame must be loaded. Keeps u and its scale if asked to.
  void next(const Message& before, const Message& out, double* u = nullptr, double* u_scale = nullptr);

  const Model& m;
  const Video& v;
  Buffer factors, phase_factors, phase_scale, weights, weighted_for, reference, spare, tool_logs, zeros;
  const double* weighted_table = nullptr;
};

double Steps::load_frame(int64_t t) {
  double removed = 0;
  if (v.phases.data) {
    for (long q = 0; q < m.L; ++q) phase_factors[q] = get(v.phases, t * m.L + q);
    for (long o = 0; o < m.Lp; o += W) {
      const V x = load(phase_factors + o);
      // Most phases need no power of their own.
      const V scale = round_to_integer(select(x > fill(-INFINITY), x, V{}) * fill(1 / (LN2 * QUANTUM))) * fill(QUANTUM);
      store(phase_scale + o, scale);
      constexpr double high = 6.93147180369123816490e-01, low = 1.90821492927058770002e-10;
      store(phase_factors + o, exponential((x - scale * fill(high)) - scale * fill(low)));
    }
    for (long q = m.L; q < m.Lp; ++q) phase_factors[q] = phase_scale[q] = 0;
  } else {
    for (long q = 0; q < m.L; ++q) phase_factors[q] = 1;
  }
  if (v.configs.data) {
    // Logarithms first: the best configuration is the best of the sums.
    double* logs = factors;
    for (long c = 0; c < m.C; ++c) logs[c] = get(v.configs, t * m.C + c);
    if (v.tools.data)
      for (long k = 0; k < m.K; ++k)
        for (long c = 0; c < m.C; ++c) logs[c] += get(v.tools, (t * m.K + k) * 2 + ((c >> (m.K - 1 - k)) & 1));
    double top = -INFINITY;
    for (long c = 0; c < m.C; ++c) top = logs[c] > top || logs[c] != logs[c] ? logs[c] : top;
    removed += top = top == -INFINITY ? 0 : top;
    for (long c = 0; c < m.C; c += W) {
      double part[W];
      const long n = m.C - c < W ? m.C - c : W;
      for (long i = 0; i < W; ++i) part[i] = i < n ? logs[c + i] - top : 0;
      store(part, exponential(load(part)));
      for (long i = 0; i < n; ++i) factors[c + i] = part[i];
    }
  } else if (v.tools.data) {
    const long n = 2 * m.K;
    for (long i = 0; i < n; i += W) {
      double part[W] = {};
      for (long k = 0; k < W && i + k < n; k += 2) {
        const double absent = get(v.tools, t * n + i + k), present = get(v.tools, t * n + i + k + 1);
        double top = absent > present || absent != absent ? absent : present;
        removed += top = top == -INFINITY ? 0 : top;
        part[k] = absent - top, part[k + 1] = present - top;
      }
      store(part, exponential(load(part)));
      for (long k = 0; k < W && i + k < n; ++k) tool_logs[i + k] = part[k];
    }
    factors[0] = 1;
    long size = 1;
    for (long k = m.K - 1; k >= 0; --k, size *= 2) {
      const double absent = tool_logs[2 * k], present = tool_logs[2 * k + 1];
      for (long c = 0; c < size; ++c) factors[size + c] = factors[c] * present, factors[c] *= absent;
    }
  } else {
    for (long c = 0; c < m.C; ++c) factors[c] = 1;
  }
  return removed;
}

void Steps::predict_phases(const Message& before, const double* table, double* u, double* u_scale, double* u_totals) {
  const long L = m.L, Lp = m.Lp;
  // Weights for the same powers of two are those of the step before.
  bool same = weighted_table == table;
  for (long o = 0; o < Lp && same; o += W) same = !any(load(before.scale + o) != load(weighted_for + o));
  if (!same) {
    weighted_table = table;
    copy(weighted_for, before.scale, Lp);
    const bool transposed = table != m.transition.get();
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

void Steps::multiply(const double* x, const double* x_scale, const Message& out) {
  const long Lp = m.Lp;
  for (long o = 0; o < Lp; o += W) {
    const V phases = load(phase_factors + o);
    V total = {};
    for (long c = 0; c < m.C; ++c) {
      const V y = load(x + c * Lp + o) * (phases * fill(factors[c]));
      store(out.rows + c * Lp + o, y);
      total += y;
    }
    store(out.totals + o, total);
    store(out.scale + o, load(x_scale + o) + load(phase_scale + o));
  }
}

void Steps::rescale(const Message& x) {
  bool in_range = true;
  for (long o = 0; o < m.Lp; o += W) {
    const V total = load(x.totals + o);
    in_range &= !any(((total < fill(LOWEST)) | (total > fill(HIGHEST))) & (total > V{}));
  }
  if (!in_range) {
    for (long q = 0; q < m.L; ++q) {
      const double total = x.totals[q];
      if (!(total > 0) || (total >= LOWEST && total <= HIGHEST) || total > 1e300) continue;
      const double shift = QUANTUM * rint(logb(total) / QUANTUM), factor = ldexp(1.0, -static_cast<int>(shift));
      for (long c = 0; c < m.C; ++c) x.rows[c * m.Lp + q] *= factor;
      x.totals[q] *= factor;
      x.scale[q] += shift;
    }
  }
  // An impossible phase takes another's power, so that powers stay alike.
  double top = -INFINITY;
  bool impossible = false;
  for (long q = 0; q < m.L; ++q) {
    if (x.totals[q] > 0) top = x.scale[q] > top ? x.scale[q] : top;
    else impossible = true;
  }
  if (top == -INFINITY) top = 0;
  if (impossible)
    for (long q = 0; q < m.L; ++q) if (!(x.totals[q] > 0)) x.scale[q] = top;
  for (long q = m.L; q < m.Lp; ++q) x.scale[q] = top;
}

void Steps::next(const Message& before, const Message& out, double* u, double* u_scale) {
  double* rows = u ? u : out.rows;
  double* scale = u_scale ? u_scale : out.scale;
  predict_phases(before, m.transition, rows, scale, out.totals);
  if (u) copy(out.rows, u, m.rows);
  push(out.rows, false);
  multiply(out.rows, scale, out);
  rescale(out);
}

// The sum of 2^(scale - top) * totals, and top, the largest power of a possible phase.
struct Total {
  double value = 0, top = -INFINITY;
};

Total total_of(const double* scale, const double* totals, long L) {
  Total out;
  for (long q = 0; q < L; ++q)
    if (totals[q] != 0) out.top = scale[q] > out.top ? scale[q] : out.top;
  if (out.top == -INFINITY) return out;
  for (long q = 0; q < L; ++q)
    if (totals[q] != 0 && scale[q] - out.top > -1000) out.value += ldexp(totals[q], static_cast<int>(scale[q] - out.top));
  return out;
}

double log_of(const Message& x, long L) {
  const Total total = total_of(x.scale, x.totals, L);
  return log(total.value) + (total.top == -INFINITY ? 0 : total.top * LN2);
}

int64_t chunk_size(int64_t frames, int64_t smallest) {
  int64_t size = static_cast<int64_t>(sqrt(static_cast<double>(frames)) / 2);
  return size > smallest ? size : smallest;
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

double log_normalizer(const void* model, const Video& v) {
  const Model& m = *static_cast<const Model*>(model);
  if (v.length <= 0) return 0;
  Steps steps(m, v);
  Buffer buffers(2 * Message::size(m));
  Message now(buffers, m), then(buffers + Message::size(m), m);
  double removed = steps.load_frame(0);
  steps.first(now);
  for (int64_t t = 1; t < v.length; ++t) {
    removed += steps.load_frame(t);
    steps.next(now, then);
    const Message swap = now;
    now = then, then = swap;
  }
  return removed + log_of(now, m.L);
}

double filter(const void* model, const Video& v, const Marginals& out) {
  const Model& m = *static_cast<const Model*>(model);
  const long L = m.L, K = m.K, Lp = m.Lp;
  if (v.length <= 0) return 0;
  Steps steps(m, v);
  Buffer buffers(2 * Message::size(m)), weights(Lp), spare(m.rows);
  Message now(buffers, m), then(buffers + Message::size(m), m);
  double removed = 0;
  for (int64_t t = 0; t < v.length; ++t) {
    removed += steps.load_frame(t);
    if (t == 0)
      steps.first(now);
    else
      steps.next(then, now);
    const Total total = total_of(now.scale, now.totals, L);
    if (total.value == 0) {
      for (int64_t i = 0; i < t * L; ++i) put(out.phases, i, 0);
      for (int64_t i = 0; i < t * K * 2; ++i) put(out.tools, i, 0);
      return -INFINITY;
    }
    for (long o = 0; o < Lp; o += W)
      store(weights + o, power_of_two(load(now.scale + o) - fill(total.top)) / fill(total.value));
    for (long q = 0; q < L; ++q) put(out.phases, t * L + q, now.totals[q] * weights[q]);
    if (K) {
      copy(spare, now.rows, m.rows);
      put_tools(spare, weights, m, out.tools, t);
    }
    const Message swap = now;
    now = then, then = swap;
  }
  return removed + log_of(then, L);
}

// The backward pass: derivatives of the log-normalizer.
class Backward {
 public:
  Backward(const Model& model, const Video& video, const Gradient& gradient)
      : m(model), v(video), out(gradient), steps(m, v), buffers(2 * Message::size(m)), beta(buffers, m),
        weighted(buffers + Message::size(m), m), joint(m.rows), sums(m.Lp), weights(m.Lp), ratios(m.L * m.Lp),
        transition(m.L * m.Lp), blocks(m.table_size) {
    if (out.tables) prefixes.resize((m.num_groups + 1) * m.rows);
    for (int g = 0; g < m.num_groups; ++g) {
      groups[g] = m.groups[g];
      groups[g].counts = blocks + (groups[g].forward - m.forward);
    }
  }

  double run();

 private:
  // Writes the marginals of frame t from its message and beta, and keeps the total of their product.
  void write_marginals(int64_t t, const Message& alpha);
  // Moves beta to the frame before; u is the prediction from that frame's message before the tools' transition.
  void step(const Message& before, const double* u, const double* u_scale);
  // Counts the transition of tools while pulling the weighted message back through it.
  void count_tools(const double* u, const double* scale);
  void write_tables();

  const Model& m;
  const Video& v;
  const Gradient& out;
  Steps steps;
  Buffer buffers;
  Message beta, weighted;  // weighted: beta times the frame's likelihoods
  Buffer joint, sums, weights, ratios, transition, blocks, prefixes;
  Group groups[MAX_GROUPS];
  Total total;
};

double Backward::run() {
  const int64_t length = v.length;
  if (length <= 0) return 0;
  const long size = Message::size(m), u_size = m.rows + m.Lp;
  const int64_t chunk = chunk_size(length, 32), chunks = (length + chunk - 1) / chunk;
  // Of each chunk, the message of the frame before it.
  Buffer starts(chunks * size), two(2 * size);
  Message now(two, m), then(two + size, m);
  double removed = 0;
  for (int64_t t = 0; t < length; ++t) {
    if (t % chunk == 0 && t > 0) copy(starts + t / chunk * size, then.rows, size);
    removed += steps.load_frame(t);
    if (t == 0)
      steps.first(now);
    else
      steps.next(then, now);
    const Message swap = now;
    now = then, then = swap;
  }
  const double value = removed + log_of(then, m.L);
  if (value == -INFINITY) return value;

  const int64_t kept = (chunk < length ? chunk : length) + 1;
  Buffer messages(kept * size), us(kept * u_size);
  for (long q = 0; q < m.L; ++q) {
    for (long c = 0; c < m.C; ++c) beta.rows[c * m.Lp + q] = 1;
    beta.totals[q] = static_cast<double>(m.C);
  }
  for (int64_t i = chunks - 1; i >= 0; --i) {
    const int64_t first = i * chunk, end = first + chunk < length ? first + chunk : length;
    const auto message = [&](int64_t t) { return Message(messages + (t - first + 1) * size, m); };
    copy(messages, starts + i * size, size);
    for (int64_t t = first; t < end; ++t) {
      steps.load_frame(t);
      double* u = us + (t - first) * u_size;
      if (t == 0)
        steps.first(message(0));
      else
        steps.next(message(t - 1), message(t), u, u + m.rows);
    }
    for (int64_t t = end - 1; t >= first; --t) {
      write_marginals(t, message(t));
      if (t == 0 && !out.tables) break;
      steps.load_frame(t);
      steps.multiply(beta.rows, beta.scale, weighted);
      steps.rescale(weighted);
      double* u = us + (t - first) * u_size;
      if (t > 0) step(message(t - 1), u, u + m.rows);
    }
  }
  if (out.tables) write_tables();
  return value;
}

void Backward::write_marginals(int64_t t, const Message& alpha) {
  const long L = m.L, Lp = m.Lp;
  for (long o = 0; o < Lp; o += W) {
    V sum = {};
    for (long c = 0; c < m.C; ++c) {
      const V product = load(alpha.rows + c * Lp + o) * load(beta.rows + c * Lp + o);
      store(joint + c * Lp + o, product);
      sum += product;
    }
    store(sums + o, sum);
    store(weights + o, load(alpha.scale + o) + load(beta.scale + o));
  }
  total = total_of(weights, sums, L);
  for (long o = 0; o < Lp; o += W)
    store(weights + o, power_of_two(load(weights + o) - fill(total.top)) / fill(total.value));
  for (long q = 0; q < L; ++q) put(out.phases, t * L + q, sums[q] * weights[q]);
  if (out.configs.data)
    for (long c = 0; c < m.C; ++c) {
      double value = 0;
      for (long q = 0; q < L; ++q) value += joint[c * Lp + q] * weights[q];
      put(out.configs, t * m.C + c, value);
    }
  if (out.tools.data) put_tools(joint, weights, m, out.tools, t);
}

void Backward::step(const Message& before, const double* u, const double* u_scale) {
  const long L = m.L, Lp = m.Lp;
  if (out.tables) {
    // weights[q] brings products of u and the weighted message to probabilities.
    for (long o = 0; o < Lp; o += W)
      store(weights + o, power_of_two(load(u_scale + o) + load(weighted.scale + o) - fill(total.top)) / fill(total.value));
    count_tools(u, weights);
    for (long p = 0; p < L; ++p)
      for (long o = 0; o < Lp; o += W)
        store(ratios + p * Lp + o, load(weights + o) * power_of_two(fill(before.scale[p]) - load(u_scale + o)));
    WITH_PHASES(count_phases, L, before.rows, weighted.rows, ratios, transition, m.C, L, Lp);
  } else {
    steps.push(weighted.rows, true);
  }
  steps.predict_phases(weighted, m.transposed, beta.rows, beta.scale, beta.totals);
  steps.rescale(beta);
}

void Backward::count_tools(const double* u, const double* scale) {
  const long Lp = m.Lp;
  if (!m.num_groups) return;
  for (long o = 0; o < Lp; o += W) {
    const V s = load(scale + o);
    for (long c = 0; c < m.C; ++c) store(prefixes + c * Lp + o, load(u + c * Lp + o) * s);
  }
  for (int g = 0; g + 1 < m.num_groups; ++g)
    push_group(prefixes + g * m.rows, prefixes + (g + 1) * m.rows, groups[g], false, Lp);
  for (int g = m.num_groups - 1; g >= 0; --g) {
    const double* before = prefixes + g * m.rows;
    double* after = weighted.rows;
    if (groups[g].dense) {
      count_dense(before, after, groups[g], Lp);
      push_group(after, joint, groups[g], true, Lp);
      copy(after, joint, m.rows);
    } else if (groups[g].R == 1) {
      pull_pairs<1>(before, after, groups[g], Lp);
    } else {
      pull_pairs<2>(before, after, groups[g], Lp);
    }
  }
}

void Backward::write_tables() {
  const long L = m.L, Lp = m.Lp;
  for (long o = 0; o < Lp; o += W)
    store(weights + o, power_of_two(load(weighted.scale + o) - fill(total.top)) / fill(total.value));
  for (long q = 0; q < L; ++q) {
    for (long c = 0; c < m.C; ++c) put(out.initial, q * m.C + c, weighted.rows[c * Lp + q] * weights[q]);
    for (long p = 0; p < L; ++p) put(out.transition, p * L + q, transition[p * Lp + q]);
    const long per_phase = m.table_size / Lp;
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
      : m(model), v(video), steps(m, v), configs(m.C), phases(m.Lp), spare(m.rows), column(m.C), wide(m.C) {}

  double run(int32_t* path_phases, int32_t* path_configs);

 private:
  void load_frame(int64_t t);
  // Scores of frame t from those of the frame before, and u, the best over the phase before.
  void next(int64_t t, const double* before, double* u, double* score);
  void add_frame(const double* x, double* score);
  // Logarithms of the probability that each configuration is followed by (q, c), in column.
  void fill_column(long q, long c);

  const Model& m;
  const Video& v;
  Steps steps;
  Buffer configs, phases, spare, column, wide;
};

void BestPath::load_frame(int64_t t) {
  for (long q = 0; q < m.L; ++q) phases[q] = v.phases.data ? get(v.phases, t * m.L + q) : 0;
  for (long q = m.L; q < m.Lp; ++q) phases[q] = -INFINITY;
  for (long c = 0; c < m.C; ++c) configs[c] = v.configs.data ? get(v.configs, t * m.C + c) : 0;
  if (!v.tools.data) return;
  wide[0] = 0;
  long size = 1;
  for (long k = m.K - 1; k >= 0; --k, size *= 2) {
    const double absent = get(v.tools, (t * m.K + k) * 2), present = get(v.tools, (t * m.K + k) * 2 + 1);
    for (long c = 0; c < size; ++c) wide[size + c] = wide[c] + present, wide[c] += absent;
  }
  for (long c = 0; c < m.C; ++c) configs[c] += wide[c];
}

void BestPath::add_frame(const double* x, double* score) {
  for (long o = 0; o < m.Lp; o += W) {
    const V own = load(phases + o);
    for (long c = 0; c < m.C; ++c)
      store(score + c * m.Lp + o, load(x + c * m.Lp + o) + (own + fill(configs[c])));
  }
}

void BestPath::next(int64_t t, const double* before, double* u, double* score) {
  load_frame(t);
  WITH_PHASES(mix_max, m.L, before, m.log_transition, u, m.C, m.L, m.Lp);
  const double* x = u;
  for (int g = 0; g < m.num_groups; ++g) {
    Group group = m.groups[g];
    group.forward = m.log_forward + (group.forward - m.forward);
    double* to = x == score ? spare : score;
    push_max_group(x, to, group, m.Lp);
    x = to;
  }
  add_frame(x, score);
}

void BestPath::fill_column(long q, long c) {
  column[0] = 0;
  long size = 1;
  for (int g = 0; g < m.num_groups; ++g) {
    const Group& group = m.groups[g];
    const double* logs = m.log_forward + (group.forward - m.forward);
    for (int k = 0; k < group.R; ++k) {
      const long n = group.n, own = c / (m.C / size / n) % n;
      const double* block = logs + k * n * n * m.Lp;
      for (long i = size - 1; i >= 0; --i) {
        const double x = column[i];
        for (long j = 0; j < n; ++j) column[i * n + j] = x + block[(j * n + own) * m.Lp + q];
      }
      size *= n;
    }
  }
}

double BestPath::run(int32_t* path_phases, int32_t* path_configs) {
  const int64_t length = v.length;
  if (length <= 0) return 0;
  const long L = m.L, Lp = m.Lp, rows = m.rows;
  const int64_t chunk = chunk_size(length, 32), chunks = (length + chunk - 1) / chunk;
  const int64_t kept = chunk < length ? chunk : length;
  // Of each chunk, the scores of the frame before it.
  Buffer starts(chunks * rows), scores((kept + 1) * rows), us(kept * rows);
  const auto run_chunk = [&](int64_t i) {
    const int64_t first = i * chunk, end = first + chunk < length ? first + chunk : length;
    copy(scores, starts + i * rows, rows);
    for (int64_t t = first; t < end; ++t) {
      double* score = scores + (t - first + 1) * rows;
      if (t == 0) {
        load_frame(0);
        add_frame(m.log_initial, score);
      } else {
        next(t, score - rows, us + (t - first) * rows, score);
      }
    }
    return scores + (end - first) * rows;
  };
  double removed = 0;
  const double* last = nullptr;
  for (int64_t i = 0; i < chunks; ++i) {
    double* final = run_chunk(i);
    if (i + 1 == chunks) {
      last = final;
      break;
    }
    // Scores of a chunk are relative to the best before it.
    double top = -INFINITY;
    for (long x = 0; x < rows; ++x) top = final[x] > top ? final[x] : top;
    if (top == -INFINITY) return top;
    removed += top;
    for (long x = 0; x < rows; ++x) starts[(i + 1) * rows + x] = final[x] - top;
  }
  long q = 0, c = 0;
  for (long j = 0; j < m.C; ++j)
    for (long p = 0; p < L; ++p)
      if (last[j * Lp + p] > last[c * Lp + q]) q = p, c = j;
  const double value = last[c * Lp + q];
  if (value == -INFINITY) return value;
  for (int64_t i = chunks - 1; i >= 0; --i) {
    const int64_t first = i * chunk, end = first + chunk < length ? first + chunk : length;
    if (i + 1 < chunks) run_chunk(i);
    for (int64_t t = end - 1; t >= first; --t) {
      path_phases[t] = static_cast<int32_t>(q), path_configs[t] = static_cast<int32_t>(c);
      if (t == 0) break;
      const double *u = us + (t - first) * rows, *score = scores + (t - first) * rows;
      fill_column(q, c);
      long best = 0;
      double top = -INFINITY;
      for (long j = 0; j < m.C; ++j) {
        const double x = u[j * Lp + q] + column[j];
        if (x > top) top = x, best = j;
      }
      c = best;
      long phase = 0;
      top = -INFINITY;
      for (long p = 0; p < L; ++p) {
        const double x = score[c * Lp + p] + m.log_transition[p * Lp + q];
        if (x > top) top = x, phase = p;
      }
      q = phase;
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
