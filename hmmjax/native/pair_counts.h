// Counts of the tools' transitions.
#pragma once
#include "products.h"

namespace {

// Counts of the tools' transitions: sums over pairs of configurations before and after, of several tools at once, from
// which the derivatives of each tool's block and its marginals follow.
class PairCounts {
 public:
  explicit PairCounts(const Model& model);

  // Per group, sums over pairs of a frame (n * n, Lp), of products with groups that are not dense.
  double* sums_of(int group) { return sums + at_[group] * m.Lp; }
  // Adds the sums of a frame, multiplied by weights (Lp).
  void add(const double* weights);
  // Marginals of tools after the transition, not yet weighted, (2 K, Lp): of models without dense groups.
  void fill_marginals(double* out) const {
    for (int b = 0; b < m.counts.size; ++b)
      if (m.counts.groups[b].R == 1)
        fill_marginals<1>(b, out);
      else
        fill_marginals<COUNT_RADIX>(b, out);
  }
  // Adds to the derivatives of blocks (table_size).
  void add_to_blocks(double* blocks) const;

 private:
  template <int R>
  void fill_marginals(int group, double* out) const;

  const Model& m;
  Buffer sums, totals_, ratios_;  // ratios_: of a pair of configurations, the product of all tools' ratios
  long at_[MAX_GROUPS], size_ = 0;
};

// Entry (i, j) of a tool's matrix [[1, up], [down, 1]], from its down and up (2, Lp).
inline double entry(const double* ratios, int i, int j, long Lp, long q) {
  return i == j ? 1 : ratios[(i < j) * Lp + q];
}

PairCounts::PairCounts(const Model& model) : m(model) {
  for (int i = 0; i < m.counts.size; ++i) {
    const Group& g = m.counts.groups[i];
    at_[i] = size_;
    if (!g.dense) size_ += 1L << 2 * g.R;
  }
  sums.resize(size_ * m.Lp, 0), totals_.resize(size_ * m.Lp, 0), ratios_.resize(size_ * m.Lp, 1);
  for (int b = 0; b < m.counts.size; ++b) {
    const Group& g = m.counts.groups[b];
    for (int pair = 0; !g.dense && pair < 1 << 2 * g.R; ++pair)
      for (int k = 0; k < g.R; ++k)
        for (long q = 0; q < m.Lp; ++q)
          ratios_[(at_[b] + pair) * m.Lp + q] *=
              entry(g.ratios + 2 * k * m.Lp, pair >> (2 * g.R - 1 - k) & 1, pair >> (g.R - 1 - k) & 1, m.Lp, q);
  }
}

void PairCounts::add(const double* weights) {
  const long size = size_, Lp = m.Lp;
  const double* from = sums;
  double* to = totals_;
  for (long o = 0; o < Lp; o += W) {
    const V weight = load(weights + o);
#pragma GCC unroll 4
    for (long i = 0; i < size; ++i) store(to + i * Lp + o, load(to + i * Lp + o) + weight * load(from + i * Lp + o));
  }
}

template <int R>
void PairCounts::fill_marginals(int group, double* out) const {
  constexpr int n = 1 << R;
  const long Lp = m.Lp, first = at_[group] * Lp;
  const double *from = sums + first, *ratios = ratios_ + first;
  double* tools = out + m.counts.groups[group].offset / 2;  // blocks are of 4 numbers, marginals of 2
  for (long o = 0; o < Lp; o += W) {
    V after[n] = {}, states[2 * R] = {};
#pragma GCC unroll 16
    for (int pair = 0; pair < n * n; ++pair) after[pair % n] += load(from + pair * Lp + o) * load(ratios + pair * Lp + o);
#pragma GCC unroll 4
    for (int k = 0; k < R; ++k)
#pragma GCC unroll 4
      for (int j = 0; j < n; ++j) states[2 * k + (j >> (R - 1 - k) & 1)] += after[j];
    for (int i = 0; i < 2 * R; ++i) store(tools + i * Lp + o, states[i]);
  }
}

void PairCounts::add_to_blocks(double* blocks) const {
  for (int b = 0; b < m.counts.size; ++b) {
    const Group& g = m.counts.groups[b];
    for (int pair = 0; !g.dense && pair < 1 << 2 * g.R; ++pair)
      for (int k = 0; k < g.R; ++k) {
        const int i = pair >> (2 * g.R - 1 - k) & 1, j = pair >> (g.R - 1 - k) & 1;
        for (long q = 0; q < m.L; ++q) {
          double x = totals_[(at_[b] + pair) * m.Lp + q] / g.forward[(4 * k + 3 * j) * m.Lp + q];
          for (int other = 0; other < g.R; ++other)
            if (other != k)
              x *= entry(g.ratios + 2 * other * m.Lp, pair >> (2 * g.R - 1 - other) & 1, pair >> (g.R - 1 - other) & 1,
                         m.Lp, q);
          blocks[g.offset + (4 * k + 2 * i + j) * m.Lp + q] += x;
        }
      }
  }
}

}  // namespace
