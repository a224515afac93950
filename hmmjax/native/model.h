// A model's tables, prepared once for many videos.
#pragma once
#include <cstdlib>

#include "chain.h"
#include "vectors.h"

namespace {

using namespace hmmjax;

INLINE double get(const In& x, int64_t i) {
  return x.is_double ? static_cast<const double*>(x.data)[i] : static_cast<const float*>(x.data)[i];
}

INLINE void put(const Out& x, int64_t i, double value) {
  if (x.is_double)
    static_cast<double*>(x.data)[i] = value;
  else
    static_cast<float*>(x.data)[i] = static_cast<float>(value);
}

// The n <= W entries from i on, then zeros. By one load and one store: what is written number by number cannot be read as a
// vector until it has reached the cache.
INLINE V get(const In& x, int64_t i, long n) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const uint16_t mask = (1 << n) - 1;
  if (x.is_double) return _mm512_maskz_loadu_pd(mask, static_cast<const double*>(x.data) + i);
  return _mm512_cvtps_pd(_mm512_castps512_ps256(_mm512_maskz_loadu_ps(mask, static_cast<const float*>(x.data) + i)));
#elif defined(__AVX2__)
  const __m128i mask = _mm_cmpgt_epi32(_mm_set1_epi32(static_cast<int>(n)), _mm_setr_epi32(0, 1, 2, 3));
  if (x.is_double) return _mm256_maskload_pd(static_cast<const double*>(x.data) + i, _mm256_cvtepi32_epi64(mask));
  return _mm256_cvtps_pd(_mm_maskload_ps(static_cast<const float*>(x.data) + i, mask));
#else
  return V{get(x, i), n > 1 ? get(x, i + 1) : 0};
#endif
}

INLINE void put(const Out& x, int64_t i, long n, V v) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const uint16_t mask = (1 << n) - 1;
  if (x.is_double) return _mm512_mask_storeu_pd(static_cast<double*>(x.data) + i, mask, v);
  _mm512_mask_storeu_ps(static_cast<float*>(x.data) + i, mask, _mm512_castps256_ps512(_mm512_cvtpd_ps(v)));
#else
  for (long k = 0; k < n; ++k) put(x, i + k, v[k]);
#endif
}

// Memory that a thread has given back and may take again: the system would clear every page of new memory.
class Spares {
 public:
  ~Spares() {
    for (auto& x : spares_) free(x.data);
  }
  void* take(size_t size) {
    for (auto& x : spares_)
      if (x.data && x.size >= size && x.size / 2 <= size) {
        void* data = x.data;
        x.data = nullptr, held_ -= x.size;
        return data;
      }
    return aligned_alloc(64, size);
  }
  void give(void* data, size_t size) {
    for (auto& x : spares_)
      if (!x.data && size >= SMALLEST && held_ + size <= LARGEST) {
        x.data = data, x.size = size, held_ += size;
        return;
      }
    free(data);
  }
  static Spares& of_thread() {
    static thread_local Spares spares;
    return spares;
  }

 private:
  static constexpr size_t SMALLEST = 1 << 16, LARGEST = 1 << 23;  // bytes
  struct {
    void* data = nullptr;
    size_t size = 0;
  } spares_[16];
  size_t held_ = 0;
};

// Doubles, aligned to vector registers.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) { resize(size); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }
  void resize(int64_t size) {
    release();
    bytes_ = static_cast<size_t>(size + 8) / 8 * 64;
#ifdef __SANITIZE_ADDRESS__
    data_ = static_cast<double*>(aligned_alloc(64, bytes_));
    for (size_t i = 0; data_ && i < bytes_ / sizeof(double); ++i) data_[i] = NAN;  // shows what is read before it is written
#else
    data_ = static_cast<double*>(Spares::of_thread().take(bytes_));
#endif
    if (!data_) abort();
  }
  void resize(int64_t size, double value) {
    resize(size);
    for (int64_t i = 0; i < size; ++i) data_[i] = value;
  }
  double* get() const { return data_; }
  operator double*() const { return data_; }

 private:
  void release() {
#ifdef __SANITIZE_ADDRESS__
    free(data_);
#else
    if (data_) Spares::of_thread().give(data_, bytes_);
#endif
  }

  double* data_ = nullptr;
  size_t bytes_ = 0;
};

INLINE void copy(double* to, const double* from, long size) {
  for (long i = 0; i < size; i += W) store(to + i, load(from + i));  // sizes are multiples of Lp, and so of W
}

// Largest numbers of tools whose products share one pass over memory, by the number of registers: after a product with
// the transition of phases, by themselves, and with counts of their pairs.
#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int FUSED_RADIX = 3, RADIX = 4, COUNT_RADIX = 2;
#else
constexpr int FUSED_RADIX = 2, RADIX = 3, COUNT_RADIX = 1;
#endif

constexpr int MAX_GROUPS = 64;

// Largest cost of a transition of all tools, in nats, for which nothing that doubles lose can matter: they resolve some
// 500 nats below the most probable configuration of a phase, and a path through a lost configuration costs two
// transitions more than one through the best.
constexpr double SAFE_NATS = 200;
// Probabilities of phases below which products of several might leave the range of doubles.
constexpr double SAFE_PHASES = 1e-100;

// Tools that leave a state with a higher probability than this take the dense products.
constexpr double LOWEST_STAY = 0x1p-8;

// Some neighboring tools of the transition: R blocks of size 2 (dense is false), or one block of any size n.
//
// A block of size 2 is its diagonal times a matrix of ones on the diagonal, so that its product costs one multiplication
// per number: [[s, 1 - s], [1 - t, t]] = [[1, up], [down, 1]] diag(s, t), up = (1 - s) / t and down = (1 - t) / s.
// The diagonals of all blocks are multiplied at once (Model::diagonal).
struct Group {
  bool dense = false;
  int R = 1;
  long n = 2;                        // size of the block, or of each of R blocks
  long left = 1, right = 1;          // numbers of configurations of the bits on the left and on the right
  long offset = 0;                   // of its blocks among those of all groups, in doubles
  const double* ratios = nullptr;    // (R, 2, Lp), down and up, if not dense
  const double* forward = nullptr;   // (n, n, Lp), if dense
  const double* backward = nullptr;  // the same, transposed
};

// The tools' transition as groups of blocks, from the least significant configurations up.
struct Plan {
  int size = 0;
  Group groups[MAX_GROUPS];
};

struct Model {
  long L, Lp, C, K, rows;   // rows: size of a message, C * Lp
  int block = 0;            // a product with the transition of phases is followed by those of 2^block configurations
  bool all_pairs = true;    // no group is dense
  bool is_safe = true;      // no number that is lost can matter: see wide.h
  bool start_has_zeros = false;  // in some configurations of a phase that may be the first
  long num_blocks = 0;
  long block_sizes[MAX_GROUPS] = {};
  Plan steps, counts;       // for products alone, and for products with counts
  long table_size = 0;      // of all blocks, with the phases of each entry
  long num_ratios = 0;      // size of ratios
  Buffer inside;            // (Lp): 1 for phases, 0 in padding
  Buffer initial, transition, transposed, exponents, forward, backward, ratios, diagonal;
  Buffer log_initial, log_transition, log_forward, log_ratios, log_diagonal;

  Model(const Tables& t, bool logs);

  // Whether the products with the transition of phases are followed by those of the first group of steps at once.
  bool is_fused() const { return steps.size && !steps.groups[0].dense && steps.groups[0].R == block; }

 private:
  void load_phases(const Tables& t);
  void load_blocks(const Tables& t);
  void find_safe(const Tables& t);
  void load_ratios(const Tables& t);
  void load_logs(const Tables& t);
  void make_plan(const Tables& t, int first_radix, int radix, Plan& plan) const;

  bool is_pair[MAX_GROUPS] = {};  // of each block: whether it is of size 2 and not dense
};

Model::Model(const Tables& t, bool logs) : L(t.phases), C(t.configs), K(t.tools) {
  Lp = (L + W - 1) / W * W;
  rows = C * Lp;
  load_phases(t);
  load_blocks(t);
  const long per_phase = table_size / Lp;
  long first = 0;
  for (int64_t b = 0; b < t.num_blocks; ++b) {
    const long n = t.block_sizes[b];
    is_pair[b] = n == 2;
    for (long q = 0; q < L && is_pair[b]; ++q)
      for (long i = 0; i < 2; ++i) is_pair[b] &= ::get(t.blocks, q * per_phase + first + 3 * i) >= LOWEST_STAY;
    all_pairs &= is_pair[b];
    first += n * n;
  }
  find_safe(t);
  load_ratios(t);
  while (block < FUSED_RADIX && 2L << block <= C) ++block;
  make_plan(t, block, RADIX, steps);
  make_plan(t, COUNT_RADIX, COUNT_RADIX, counts);
  if (logs) load_logs(t);
}

void Model::load_phases(const Tables& t) {
  inside.resize(Lp);
  for (long q = 0; q < Lp; ++q) inside[q] = q < L;
  initial.resize(rows, 0);
  transition.resize(L * Lp, 0), transposed.resize(L * Lp, 0), exponents.resize(L * Lp, 0);
  for (long q = 0; q < L; ++q) {
    bool some = false, all = true;
    for (long c = 0; c < C; ++c) {
      const double x = initial[c * Lp + q] = ::get(t.initial, q * C + c);
      some |= x > 0, all &= x > 0;
    }
    start_has_zeros |= some && !all;
    for (long p = 0; p < L; ++p) {
      const double x = ::get(t.transition, p * L + q);
      transition[p * Lp + q] = transposed[q * Lp + p] = x;
      exponents[p * Lp + q] = x > 0 ? logb(x) : -INFINITY;
    }
  }
}

void Model::load_blocks(const Tables& t) {
  long per_phase = 0, first = 0;
  for (int64_t b = 0; b < t.num_blocks; ++b) per_phase += t.block_sizes[b] * t.block_sizes[b];
  table_size = per_phase * Lp;
  forward.resize(table_size, 0), backward.resize(table_size, 0);
  for (int64_t b = 0; b < t.num_blocks; ++b) {
    const long n = t.block_sizes[b];
    for (long i = 0; i < n; ++i)
      for (long j = 0; j < n; ++j)
        for (long q = 0; q < L; ++q)
          forward[(first + i * n + j) * Lp + q] = backward[(first + j * n + i) * Lp + q] =
              ::get(t.blocks, q * per_phase + first + i * n + j);
    first += n * n;
  }
}

// A lost configuration is less probable than another by what doubles hold; it cannot matter if it is reached again from
// the other, and the other from it, with more probability than that.
void Model::find_safe(const Tables& t) {
  num_blocks = t.num_blocks;
  for (long b = 0; b < num_blocks; ++b) block_sizes[b] = t.block_sizes[b];
  for (long q = 0; q < L; ++q) {
    double least = 0;
    const double* table = forward;
    for (long b = 0; b < num_blocks; ++b) {
      const long size = block_sizes[b] * block_sizes[b];
      double lowest = INFINITY;
      for (long i = 0; i < size; ++i) lowest = fmin(lowest, table[i * Lp + q]);
      least += log(lowest);
      table += size * Lp;
    }
    is_safe &= !(least < -SAFE_NATS);
  }
  const auto is_tiny = [](double x) { return x > 0 && x < SAFE_PHASES; };
  for (long i = 0; i < rows; ++i) is_safe &= !is_tiny(initial[i]);
  for (long i = 0; i < L * Lp; ++i) is_safe &= !is_tiny(transition[i]);
}

void Model::load_ratios(const Tables& t) {
  num_ratios = 2 * (t.num_blocks > FUSED_RADIX ? t.num_blocks : FUSED_RADIX) * Lp;  // at least those of a fused group
  ratios.resize(num_ratios, 0), diagonal.resize(rows, 1);
  const double* table = forward;
  for (long b = 0, right = C; b < t.num_blocks; ++b) {
    const long n = t.block_sizes[b];
    right /= n;
    if (is_pair[b]) {
      for (long q = 0; q < L; ++q) {
        ratios[2 * b * Lp + q] = table[2 * Lp + q] / table[q];
        ratios[(2 * b + 1) * Lp + q] = table[Lp + q] / table[3 * Lp + q];
      }
      for (long c = 0; c < C; ++c)
        for (long q = 0; q < Lp; ++q) diagonal[c * Lp + q] *= table[(c / right & 1 ? 3 : 0) * Lp + q];
    }
    table += n * n * Lp;
  }
}

void Model::load_logs(const Tables& t) {
  const auto fill_logs = [](Buffer& out, const double* in, long size) {
    out.resize(size);
    for (long i = 0; i < size; ++i) out[i] = log(in[i]);
  };
  fill_logs(log_initial, initial, rows), fill_logs(log_transition, transition, L * Lp);
  fill_logs(log_forward, forward, table_size), fill_logs(log_ratios, ratios, num_ratios);
  log_diagonal.resize(rows, 0);
  const double* table = log_forward;
  for (long b = 0, right = C; b < t.num_blocks; ++b) {
    const long n = t.block_sizes[b];
    right /= n;
    for (long c = 0; c < C && is_pair[b]; ++c)
      for (long q = 0; q < Lp; ++q) log_diagonal[c * Lp + q] += table[(c / right & 1 ? 3 : 0) * Lp + q];
    table += n * n * Lp;
  }
}

// first_radix: of the least significant group.
void Model::make_plan(const Tables& t, int first_radix, int radix, Plan& plan) const {
  long first = table_size / Lp, left = C, right = 1;
  for (int64_t b = t.num_blocks; b > 0; plan.size++) {
    Group& g = plan.groups[plan.size];
    const int most = plan.size ? radix : first_radix;
    g.n = t.block_sizes[b - 1], g.dense = !is_pair[b - 1];
    if (!g.dense)
      while (g.R < most && b - g.R > 0 && is_pair[b - g.R - 1]) ++g.R;
    g.right = right;
    for (int k = 0; k < g.R; ++k, --b) left /= g.n, right *= g.n, first -= g.n * g.n;
    g.left = left, g.offset = first * Lp;
    g.ratios = ratios + 2 * b * Lp, g.forward = forward + g.offset, g.backward = backward + g.offset;
  }
}

}  // namespace
