// What the handlers pass to the recursions: one model, one video, and where results go. No dependencies.
#pragma once
#include <cstdint>

namespace hmmjax {

// A read-only array of float or double.
struct In {
  const void* data = nullptr;
  bool is_double = false;
};

// An array of float or double to write to.
struct Out {
  void* data = nullptr;
  bool is_double = false;
};

// The tables of one chain, row-major: initial (L, C), transition (L, L), blocks (L, sum of n * n), each n * n row-major.
struct Tables {
  int64_t phases = 0, configs = 0, tools = 0, num_blocks = 0;
  const int64_t* block_sizes = nullptr;
  In initial, transition, blocks;
};

// The emission log-likelihoods of one video: phases (T, L); tools (T, K, 2) or none; configs (T, C) or none.
struct Video {
  int64_t frames = 0, length = 0;
  In phases, tools, configs;
};

// Derivatives of one video's log-normalizer, in the shapes of the inputs, where there is an array for them; `tables` says
// whether those of the tables too.
struct Gradient {
  bool tables = false;
  Out phases, tools, configs, initial, transition, blocks;
};

// Filtered marginals: phases (T, L), and tools (T, K), the probability of presence.
struct Marginals {
  Out phases, tools;
};

// One chain of a running video: the filter frame by frame, and the smoother of the last frames. The caller keeps the memory,
// a ring of lag + 2 slots of slot_size doubles: what a step writes leaves the frames before intact, so that it may be
// repeated, with another observation, until the next frame is taken.
class Stream {
 public:
  virtual ~Stream();
  virtual int64_t slot_size() const = 0;
  // Frame t (of length 1 in `video`); returns the log-likelihood of all frames so far: -INFINITY if it is impossible, NAN if
  // doubles cannot hold the first frame. Writes marginals of the frame and, from frame `lag` on, of that `lag` frames before.
  virtual double step(double* memory, int64_t t, const Video& video, const Marginals& now, const Marginals& lagged) = 0;
  // Smoothed marginals of the last `count` of `frames` frames, count <= lag + 1.
  virtual void smooth(double* memory, int64_t frames, int64_t count, const Marginals& out) = 0;
  // Frame t in logarithms: filtered probabilities (L, C), likelihoods of phases (L) and configurations (C).
  virtual void read(double* memory, int64_t t, double* filtered, double* phases, double* configs) = 0;
  virtual double log_likelihood(double* memory, int64_t t) = 0;  // of all frames up to t
  // What `read` gave; log_likelihood: of all frames up to it.
  virtual void write(double* memory, int64_t t, const double* filtered, const double* phases, const double* configs,
                     double log_likelihood) = 0;
};

// The recursions, compiled once per instruction set. A model is prepared once and serves many videos.
struct Recursions {
  const char* name;
  void* (*prepare)(const Tables&, bool logs);  // logs: for viterbi
  void (*release)(void*);
  double (*log_normalizer)(const void*, const Video&);
  double (*gradient)(const void*, const Video&, const Gradient&);
  double (*filter)(const void*, const Video&, const Marginals&);
  double (*viterbi)(const void*, const Video&, int32_t* phases, int32_t* configs);
  Stream* (*stream)(const void*, int64_t lag);  // null if numbers need a power each (wide.h)
};

// Null where the compiler cannot target the instruction set.
const Recursions* avx512();
const Recursions* avx2();
const Recursions* baseline();

// The fastest of them that this processor runs; HMMJAX_NATIVE names others, for tests.
const Recursions& fastest();

}  // namespace hmmjax
