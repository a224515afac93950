// Multiply-adds per nanosecond of one thread: the most that the processor does, and products of messages with the tools'
// transitions in double and in float, from the cache. Compiled and run by arithmetic.py.
#include <ctime>

#include <cstdio>
#include <cstring>

namespace {

// Two configurations share a register of floats, so that both types hold the same numbers of 8 phases.
template <class T>
struct Lanes {
#ifdef __AVX512F__
  static constexpr int bytes = 64;
#elif defined(__AVX2__)
  static constexpr int bytes = 32;
#else
  static constexpr int bytes = 16;
#endif
  typedef T V __attribute__((vector_size(bytes)));
};

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

template <class Body>
double best_of(int repeats, Body body) {
  double best = 1e300;
  for (int i = 0; i < repeats; ++i) {
    const double start = now();
    body();
    const double took = now() - start;
    best = took < best ? took : best;
  }
  return best;
}

template <class T>
double peak() {
  using V = typename Lanes<T>::V;
  constexpr int chains = 10, rounds = 200000;
  V x[chains], factor = V{} + T(0.999), term = V{} + T(0.001);
  for (V& v : x) v = term;
  const double took = best_of(20, [&] {
    for (int n = 0; n < rounds; ++n)
#pragma GCC unroll 16
      for (V& v : x) v = v * factor + term;
  });
  T all = 0;
  for (const V& v : x) all += v[0];
  if (all == 0) printf(" ");  // so that the loop is not removed
  return double(chains) * rounds * (sizeof(V) / sizeof(T)) / took;
}

// 3 tools of 1,024 numbers: 8 rows, `stride` rows apart, and their coefficients in registers.
template <class T, int stride>
void push(T* message, const typename Lanes<T>::V* down, const typename Lanes<T>::V* up) {
  using V = typename Lanes<T>::V;
  constexpr int lanes = sizeof(V) / sizeof(T), rows = 1024 / lanes;
  for (int left = 0; left < rows; left += 8 * stride)
    for (int right = 0; right < stride; ++right) {
      T* at = message + (left + right) * lanes;
      V x[8];
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) memcpy(&x[r], at + r * stride * lanes, sizeof(V));
#pragma GCC unroll 3
      for (int k = 0; k < 3; ++k)
#pragma GCC unroll 8
        for (int r = 0; r < 8; ++r)
          if (!(r >> k & 1)) {
            const V absent = x[r], present = x[r | 1 << k];
            x[r] = absent + present * down[k], x[r | 1 << k] = present + absent * up[k];
          }
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) memcpy(at + r * stride * lanes, &x[r], sizeof(V));
    }
}

template <class T>
double products() {
  using V = typename Lanes<T>::V;
  constexpr int rows = 1024 * sizeof(T) / sizeof(V), rounds = 2000;
  alignas(64) static T message[1024];
  for (T& x : message) x = T(1) / 1024;
  V down[3], up[3];
  for (int k = 0; k < 3; ++k) down[k] = V{} + T(0.01), up[k] = V{} + T(0.02);
  const double took = best_of(20, [&] {
    for (int n = 0; n < rounds; ++n) {
      push<T, rows / 64>(message, down, up);
      push<T, rows / 8>(message, down, up);
      if (n % 64 == 63)
        for (T& x : message) x *= T(0.05);  // stays in range
    }
  });
  return 6.0 * 1024 * rounds / took;
}

}  // namespace

int main() {
  printf("{\"double\": {\"peak\": %.3g, \"products\": %.3g}, \"float\": {\"peak\": %.3g, \"products\": %.3g}}\n",
         peak<double>(), products<double>(), peak<float>(), products<float>());
}
