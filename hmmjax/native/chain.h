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

// The recursions, compiled once per instruction set. A model is prepared once and serves many videos.
struct Recursions {
  const char* name;
  void* (*prepare)(const Tables&, bool logs);  // logs: for viterbi
  void (*release)(void*);
  double (*log_normalizer)(const void*, const Video&);
  double (*gradient)(const void*, const Video&, const Gradient&);
  double (*filter)(const void*, const Video&, const Marginals&);
  double (*viterbi)(const void*, const Video&, int32_t* phases, int32_t* configs);
};

// Null where the compiler cannot target the instruction set.
const Recursions* avx512();
const Recursions* avx2();
const Recursions* baseline();

}  // namespace hmmjax
