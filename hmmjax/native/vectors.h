// Vectors of doubles of the width W that the including file defines, by the vector extensions of GCC and Clang.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int W = 8;
#elif defined(__AVX2__)
constexpr int W = 4;
#else
constexpr int W = 2;
#endif

#define INLINE inline __attribute__((always_inline))

typedef double V __attribute__((vector_size(W * 8)));
typedef int64_t I __attribute__((vector_size(W * 8)));

INLINE V load(const double* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

INLINE void store(double* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

INLINE V fill(double x) { return x - V{}; }

INLINE V select(I condition, V a, V b) { return (V)((condition & (I)a) | (~condition & (I)b)); }

INLINE V maximum(V a, V b) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return _mm512_maskz_max_pd(0xff, a, b);  // not _mm512_max_pd, for which GCC 12 warns
#elif defined(__AVX2__)
  return _mm256_max_pd(a, b);
#else
  return select(a > b, a, b);
#endif
}

INLINE bool any(I condition) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return _mm512_movepi64_mask((__m512i)condition) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_pd((__m256d)condition) != 0;
#else
  return (condition[0] | condition[1]) != 0;
#endif
}

// Not _mm512_reduce_add_pd and _mm512_reduce_max_pd, for which GCC 12 warns.
INLINE double sum(V v) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
  return v[0];
#else
  double total = 0;
  for (int i = 0; i < W; ++i) total += v[i];
  return total;
#endif
}

INLINE double largest(V v) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  v = maximum(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = maximum(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  v = maximum(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
  return v[0];
#else
  double top = v[0];
  for (int i = 1; i < W; ++i) top = v[i] > top ? v[i] : top;
  return top;
#endif
}

INLINE V swap_pairs(V v) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#elif defined(__AVX2__)
  return __builtin_shufflevector(v, v, 1, 0, 3, 2);
#else
  return V{v[1], v[0]};
#endif
}

// Adding and subtracting it rounds to an integer, which is then in the lowest bits.
constexpr double ROUNDER = 6755399441055744.0;  // 1.5 * 2^52

INLINE V round_to_integer(V x) { return (x + fill(ROUNDER)) - fill(ROUNDER); }

// 2^n of integers: 0 below -1022, capped above 1000, where products with numbers of order one are still finite.
INLINE V power_of_two(V n) {
  const I is_normal = n >= fill(-1022.0);
  n = select(n > fill(1000.0), fill(1000.0), n);
  n = select(is_normal, n, fill(-1022.0));
  const I bits = ((I)(n + fill(ROUNDER)) + 1023) << 52;
  return (V)(is_normal & bits);
}

constexpr double LN2 = 0.693147180559945309417232121458;
// ln 2 in two parts, the first with few enough bits that its products with small integers are exact.
constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;

// exp(x) to within three units in the last place, for x of at most 700; 0 below -708; NaN for NaN.
INLINE V exponential(V x) {
  const V bounded = maximum(x, fill(-708.0));
  const V n = round_to_integer(bounded * fill(1.44269504088896340736));
  const V r = (bounded - n * fill(LN2_HIGH)) - n * fill(LN2_LOW);
  // Taylor's series, of which neighboring terms are added first: a chain of products would take twice as long.
  const V r2 = r * r, r4 = r2 * r2;
  const auto pair = [r](double a, double b) __attribute__((always_inline)) { return fill(a) + r * fill(b); };
  const V low = pair(1.0 / 2, 1.0 / 6) + r2 * pair(1.0 / 24, 1.0 / 120);
  const V middle = pair(1.0 / 720, 1.0 / 5040) + r2 * pair(1.0 / 40320, 1.0 / 362880);
  const V high = pair(1.0 / 3628800, 1.0 / 39916800) + r2 * fill(1.0 / 479001600);
  V y = fill(1.0) + (r + r2 * (low + r4 * (middle + r4 * high)));
  const I bits = ((I)(n + fill(ROUNDER)) + 1023) << 52;
  y = y * (V)bits;
  return select(x < fill(-708.0), V{}, select(x != x, x, y));
}

}  // namespace
