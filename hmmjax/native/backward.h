// The backward recursion over one video: derivatives of the log-normalizer.
//
// Messages of a chunk of frames are kept, and of the others only each chunk's first: the backward pass repeats the
// forward pass of its chunk, from the processor's cache.
#pragma once
#include "filter.h"
#include "pair_counts.h"
#include "wide.h"

namespace {

class Backward {
 public:
  Backward(const Model& model, const Video& video, const Gradient& gradient)
      : m(model), v(video), out(gradient), steps(m, v), counted(m, false), transposed(m, true), relative(m.Lp), tools(m), pairs(m),
        buffers(2 * Message::size(m)), weighted(buffers, m), other(buffers + Message::size(m), m), sums(m.Lp),
        scale(m.Lp), weights(m.Lp), table(m.L * m.Lp), raw_scale(m.Lp) {
    by_counts = out.tables && m.all_pairs && !out.configs.data;
    spare.resize(m.rows);
    if (!out.tables) return;
    prefixes.resize(m.counts.size * m.rows), moves.resize(m.L * m.Lp);
    transition.resize(m.L * m.Lp, 0), added.resize(m.L * m.Lp, 0), blocks.resize(m.table_size, 0);
  }

  double run();

  // Writes the marginals of the frames 0 ... count - 1 given all of them, or of the first alone, from the filter's messages:
  // at(t) has the frame and the message of frame t.
  template <class At>
  void smooth(int64_t count, bool all, At at) {
    for (int64_t t = count - 1; t >= 0; --t) {
      if (t + 1 < count) step(t + 1, at(t + 1).frame, at(t).message, nullptr);
      weigh_frame(t, at(t).frame, at(t).message, t + 1 < count, all || t == 0);
    }
  }

  // Whether numbers may have been lost that matter: only of models that are not safe.
  bool is_lost() const { return lost; }

 private:
  // Brings the weighted message of frame t + 1 (if `has_next`, else of none) to frame t, times its likelihoods of
  // configurations. If `is_direct`, writes the marginals of the frame from its forward message.
  void weigh_frame(int64_t t, const Frame& frame, const Message& alpha, bool has_next, bool is_direct);
  void write_marginals(int64_t t, const Message& alpha);
  // Pulls the weighted message of frame t back through the tools, and prepares that through the phases.
  void step(int64_t t, const Frame& frame, const Message& before, const double* u);
  // Counts the transition from the frame before; u is the prediction from it before the tools move.
  void count(int64_t t, const Frame& frame, const Message& before, const double* u);
  // Adds what was counted to the derivatives of the phases' transition.
  void add_counted();
  void write_tables(const Frame& frame);
  // Numbers below 2^-900 or so are lost on both sides of a frame, where u_scale (Lp) are the powers of the prediction.
  // That does not matter if the product of both sides is far above, at this frame and at those where they were lost.
  void check_range(const double* u_scale, const Frame& frame);

  const Model& m;
  const Video& v;
  const Gradient& out;
  Steps steps;
  Scaled counted, transposed;  // counted: the transition from the frame before
  Relative relative;
  ToolSums tools;
  PairCounts pairs;
  Buffer buffers;
  // Backward message times the frame's likelihoods of configurations and the tools' diagonals (not those of phases).
  Message weighted, other;
  // added: derivatives of the transition as long as powers are the same, to be multiplied by these.
  Buffer sums, scale, weights, table, joint, transition, added, blocks, prefixes, moves, spare;
  Buffer raw_scale;           // of the weighted message before it was brought back into range
  double total = 0, top = 0;  // of the product of both messages
  bool lost = false;
  bool by_counts;             // marginals follow from the counts
};

double Backward::run() {
  const int64_t length = v.length;
  if (length <= 0) return 0;
  const long size = Message::size(m), frame_size = Frame::size(m);
  const int64_t chunk = chunk_size(length, size + m.rows + frame_size), chunks = (length + chunk - 1) / chunk;
  // Of each chunk but the first, the message of the frame before it.
  Buffer starts((chunks - 1) * size), messages((chunk + 1) * size), us(chunk * m.rows), frames((chunk + 1) * frame_size);
  double value = 0;
  if (chunks > 1) {
    value = forward(steps, [&](int64_t t, const Message& before, const Message&) {
      if (t % chunk == 0 && t > 0) copy(starts + (t / chunk - 1) * size, before.scale, size);
      return true;
    });
    if (value == -INFINITY) return value;
  }
  if (out.configs.data) joint.resize(m.rows);
  for (int64_t i = chunks - 1; i >= 0; --i) {
    const int64_t first = i * chunk, end = first + chunk < length ? first + chunk : length;
    const auto message = [&](int64_t t) { return Message(messages + (t - first + 1) * size, m); };
    const auto frame = [&](int64_t t) { return Frame(frames + (t - first + 1) * frame_size, m); };
    if (i > 0) copy(messages, starts + (i - 1) * size, size), steps.load_frame(first - 1, frame(first - 1));
    double removed = 0;
    for (int64_t t = first; t < end; ++t) {
      removed += steps.load_frame(t, frame(t));
      if (t == 0)
        steps.first(frame(t), message(t));
      else
        steps.next(frame(t), message(t - 1), message(t), us + (t - first) * m.rows);
    }
    if (chunks == 1) {
      value = removed + Total(relative, message(end - 1).scale, message(end - 1).totals, weights, m.Lp).log();
      if (value == -INFINITY) return value;
    }
    if (end == length) weigh_frame(end - 1, frame(end - 1), message(end - 1), false, !by_counts || length == 1);
    for (int64_t t = end - 1; t >= first && t > 0; --t) {
      step(t, frame(t), message(t - 1), us + (t - first) * m.rows);
      weigh_frame(t - 1, frame(t - 1), message(t - 1), true, !by_counts || t == 1);
    }
    if (first > 0) continue;
    for (long o = 0; o < m.Lp; o += W) store(scale + o, V{});
    check_range(scale, frame(0));
    if (out.tables) write_tables(frame(0));
  }
  return value;
}

void Backward::weigh_frame(int64_t t, const Frame& frame, const Message& alpha, bool has_next, bool is_direct) {
  const bool pulls = !out.tables && m.steps.size && !m.steps.groups[0].dense && m.steps.groups[0].R == m.block;
  with_block(m, [&](auto block, auto phases) __attribute__((always_inline)) {
    constexpr int R = decltype(block)::value, N = 1 << R;
    const long Lp = decltype(phases)::value ? decltype(phases)::value : m.Lp, L = m.L, C = m.C;
    const double *from = weighted.rows, *weights_of = R ? table : transposed.table, *diagonal = m.diagonal, *configs = frame.configs;
    const double* forward_rows = alpha.rows;
    double *to = other.rows, *high = tools.high, *products_to = joint;
    for (long o = 0; o < Lp; o += W) {
      const Pairs<R> back(pulls ? m.steps.groups[0].ratios : m.ratios.get(), true, Lp, o);
      V low[N] = {}, total_weight = {};
      for (long c = 0; c < C; c += N) {
        V rows[N];
        if (has_next)
          mix<N>(from, weights_of, rows, c, L, Lp, o);
        else
#pragma GCC unroll 8
          for (int i = 0; i < N; ++i) rows[i] = load(m.inside + o);
        if (is_direct) {
          V products[N];
#pragma GCC unroll 8
          for (int i = 0; i < N; ++i) products[i] = load(forward_rows + (c + i) * Lp + o) * rows[i];
          add_block<N>(products, low, high, c, Lp, o);
          if (products_to)
            for (int i = 0; i < N; ++i) store(products_to + (c + i) * Lp + o, products[i]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i)
          total_weight += rows[i] *= load(diagonal + (c + i) * Lp + o) * fill(configs[c + i]);
        if (pulls) back.push(rows);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) store(to + (c + i) * Lp + o, rows[i]);
      }
      if (is_direct)
        for (int i = 0; i < N; ++i) store(tools.low + i * Lp + o, low[i]);
      store(other.totals + o, total_weight);
      store(other.scale + o, has_next ? load(transposed.reference + o) : V{});
    }
  });
  const Message swap = weighted;
  weighted = other, other = swap;
  if (!m.is_safe) copy(raw_scale, weighted.scale, m.Lp);
  if (is_direct) write_marginals(t, alpha);
  steps.rescale(weighted);
}

void Backward::write_marginals(int64_t t, const Message& alpha) {
  const long Lp = m.Lp;
  for (long o = 0; o < Lp; o += W) {
    V all = {};
    for (long c = 0; c < tools.left; ++c) all += load(tools.high + c * Lp + o);
    store(sums + o, all);
    store(scale + o, load(alpha.scale + o) + load(weighted.scale + o));
  }
  const Total product(relative, scale, sums, weights, Lp);
  total = product.value, top = product.top;
  if (out.phases.data) put_product(out.phases, t * m.L, sums, weights, m.L);
  if (out.configs.data)
    for (long c = 0; c < m.C; ++c) {
      double value = 0;
      for (long q = 0; q < m.L; ++q) value += joint[c * Lp + q] * weights[q];
      put(out.configs, t * m.C + c, value);
    }
  if (out.tools.data) tools.write(weights, out.tools, t);
}

void Backward::step(int64_t t, const Frame& frame, const Message& before, const double* u) {
  if (out.tables) {
    count(t, frame, before, u);
  } else {
    if (!m.is_safe) counted.load_for(before.scale), check_range(counted.reference, frame);
    const Plan& plan = m.steps;
    for (int i = plan.size - 1; i >= 0; --i) {
      const Group& g = plan.groups[i];
      if (i == 0 && !g.dense && g.R == m.block) break;  // weigh_frame did it
      push_group(weighted.rows, g.dense ? spare.get() : weighted.rows, g, true, m.Lp);
      if (g.dense) copy(weighted.rows, spare, m.rows);
    }
  }
  for (long o = 0; o < m.Lp; o += W) store(scale + o, load(weighted.scale + o) + load(frame.scale + o));
  level(scale, m, [&](long o) { return (load(frame.phases + o) > V{}) & (load(weighted.totals + o) > V{}); });
  transposed.load_for(scale);
  if (m.C == 1)  // less than to multiply the table
    for (long o = 0; o < m.Lp; o += W) store(weighted.rows + o, load(weighted.rows + o) * load(frame.phases + o));
  for (long q = 0; m.C > 1 && q < m.L; ++q)
    for (long o = 0; o < m.Lp; o += W)
      store(table + q * m.Lp + o, load(transposed.table + q * m.Lp + o) * fill(frame.phases[q]));
}

void Backward::count(int64_t t, const Frame& frame, const Message& before, const double* u) {
  const long L = m.L, Lp = m.Lp;
  const int n = m.counts.size;
  counted.load_for(before.scale, [&] { add_counted(); });
  const double* reference = counted.reference;
  for (long o = 0; o < Lp; o += W) {
    store(scale + o, load(reference + o) + load(frame.scale + o) + load(weighted.scale + o));
    // Weights bring products of u and the weighted message to probabilities.
    if (!by_counts) store(weights + o, bounded(power_of_two(load(scale + o) - fill(top)) / fill(total)));
  }
  for (int i = 0; i + 1 < n; ++i)
    push_group(i ? prefixes + (i - 1) * m.rows : u, prefixes + i * m.rows, m.counts.groups[i], false, Lp);
  for (int i = n - 1; i >= 0; --i) {
    const Group& g = m.counts.groups[i];
    const double* prefix = i ? prefixes + (i - 1) * m.rows : u;
    if (g.dense) {
      count_dense(prefix, weighted.rows, weights, blocks + g.offset, g, Lp);
      push_group(weighted.rows, spare, g, true, Lp);
      copy(weighted.rows, spare, m.rows);
    } else {
      count_pairs(prefix, weighted.rows, pairs.sums_of(i), g, Lp);
    }
  }
  if (m.C > 1) count_phases(before.rows, weighted.rows, moves, m.C, L, Lp);
  if (by_counts) {
    for (long o = 0; o < Lp; o += W) {
      V all = {};
      for (long p = 0; m.C > 1 && p < L; ++p) all += load(counted.table + p * Lp + o) * load(moves + p * Lp + o);
      store(sums + o, m.C > 1 ? all * load(frame.phases + o) : load(u + o) * load(weighted.rows + o));
    }
    const Total product(relative, scale, sums, weights, Lp);
    total = product.value, top = product.top;
    if (out.phases.data) put_product(out.phases, t * L, sums, weights, L);
    if (out.tools.data) {
      pairs.fill_marginals(tools.sums);
      tools.write_sums(weights, out.tools, t);
    }
  }
  check_range(reference, frame);
  pairs.add(weights);
  const double* own = before.rows;
  double* to = added;
  const bool is_single = m.C == 1;
  for (long o = 0; o < Lp; o += W) {
    // The weight of an impossible phase may be infinite.
    const V base = bounded(load(weights + o) * load(frame.phases + o)), after = base * load(weighted.rows + o);
    for (long p = 0; p < L; ++p) {
      const V moved = is_single ? fill(own[p]) * after : load(moves + p * Lp + o) * base;
      store(to + p * Lp + o, load(to + p * Lp + o) + moved);
    }
  }
}

void Backward::add_counted() {
  for (long i = 0; i < m.L * m.Lp; i += W) {
    store(transition + i, load(transition + i) + load(added + i) * load(counted.powers + i));
    store(added + i, V{});
  }
}

void Backward::write_tables(const Frame& frame) {
  const long L = m.L, Lp = m.Lp, per_phase = m.table_size / Lp;
  pairs.add_to_blocks(blocks), add_counted();
  for (long o = 0; o < Lp; o += W)
    store(weights + o, bounded(power_of_two(load(weighted.scale + o) + load(frame.scale + o) - fill(top)) / fill(total)) *
                           load(frame.phases + o));
  for (long q = 0; q < L; ++q) {
    for (long c = 0; c < m.C; ++c)
      put(out.initial, q * m.C + c, weighted.rows[c * Lp + q] / m.diagonal[c * Lp + q] * weights[q]);
    for (long p = 0; p < L; ++p) put(out.transition, p * L + q, transition[p * Lp + q]);
    for (long i = 0; i < per_phase; ++i) put(out.blocks, q * per_phase + i, blocks[i * Lp + q]);
  }
}

void Backward::check_range(const double* u_scale, const Frame& frame) {
  if (m.is_safe) return;
  V tops = fill(-INFINITY);
  for (long o = 0; o < m.Lp; o += W)
    tops = maximum(tops, load(u_scale + o) + load(frame.scale + o) + maximum(load(raw_scale + o), load(weighted.scale + o)));
  lost |= !(log2(total) + top - largest(tops) >= -700);
}

double gradient(const void* model, const Video& v, const Gradient& out) {
  const Model& m = *static_cast<const Model*>(model);
  if (v.length <= 0) return 0;
  if (starts_far(m, v)) return WideVideo(m, v).gradient(out);
  Backward backward(m, v, out);
  const double value = backward.run();
  // A video that seems impossible may only be out of range.
  return m.is_safe || (value > -INFINITY && !backward.is_lost()) ? value : WideVideo(m, v).gradient(out);
}

double log_normalizer(const void* model, const Video& v) {
  const Model& m = *static_cast<const Model*>(model);
  if (v.length <= 0) return 0;
  if (!m.is_safe || starts_far(m, v)) return gradient(model, v, {});  // only both passes together know whether a number is missed
  Steps steps(m, v);
  return forward(steps, [](int64_t, const Message&, const Message&) { return true; });
}

}  // namespace
