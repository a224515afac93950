// Entry points for running videos, called from Python (streams.py) once per frame.
#include <cmath>
#include <memory>
#include <vector>

#include "chain.h"

namespace hmmjax {
namespace {

// The chains of one model, all of the same size: one, or one per tool. Arrays have them on the first axis.
struct Streams {
  int64_t phases = 0, configs = 0, tools = 0, slots = 0;
  std::vector<std::shared_ptr<void>> models;
  std::vector<std::unique_ptr<Stream>> chains;

  int64_t slot_size() const { return chains[0]->slot_size(); }
  // The chain's part of the memory.
  double* memory(double* all, size_t chain) const { return all + chain * slots * slot_size(); }
  // Where the marginals of its frames go, of which phases come first.
  Marginals marginals(double* out, size_t chain, int64_t frames) const {
    return {{out + chain * frames * phases, true}, {out + chains.size() * frames * phases, true}};
  }
  int64_t num_marginals() const { return chains.size() * phases + tools * 2; }
};

In part(const void* x, int64_t offset, int64_t size, bool is_double) {
  if (size == 0) return {};
  return {static_cast<const char*>(x) + offset * (is_double ? sizeof(double) : sizeof(float)), is_double};
}

}  // namespace
}  // namespace hmmjax

using namespace hmmjax;

extern "C" {
#pragma GCC visibility push(default)

// Tables are doubles, in the layout of chain.h. Returns null if numbers need a power each.
void* hmmjax_stream_open(int64_t chains, int64_t phases, int64_t configs, int64_t tools, int64_t num_blocks,
                         const int64_t* block_sizes, const double* initial, const double* transition, const double* blocks,
                         int64_t lag) {
  const Recursions& r = fastest();
  auto s = std::make_unique<Streams>();
  s->phases = phases, s->configs = configs, s->tools = tools, s->slots = lag + 2;
  int64_t per_phase = 0;
  for (int64_t b = 0; b < num_blocks; ++b) per_phase += block_sizes[b] * block_sizes[b];
  for (int64_t i = 0; i < chains; ++i) {
    const Tables tables{phases, configs, tools, num_blocks, block_sizes, {initial + i * phases * configs, true},
                        {transition + i * phases * phases, true}, {blocks + i * phases * per_phase, true}};
    s->models.emplace_back(r.prepare(tables, false), r.release);
    s->chains.emplace_back(r.stream(s->models[i].get(), lag));
    if (!s->chains[i]) return nullptr;
  }
  return s.release();
}

void hmmjax_stream_close(void* streams) { delete static_cast<Streams*>(streams); }

// In doubles.
int64_t hmmjax_stream_memory(const void* streams) {
  const Streams& s = *static_cast<const Streams*>(streams);
  return s.chains.size() * s.slots * s.slot_size();
}

// given: log-likelihoods of phases (chains, L), tools (K, 2) if there are any, and configurations (C) if `has_configs`, one
// after another. out: marginals of phases (chains, L) and tools (K, 2) of the frame, then those of the lagged one.
double hmmjax_stream_step(void* streams, double* memory, int64_t t, const void* given, int is_double, int has_configs,
                          double* out) {
  const Streams& s = *static_cast<Streams*>(streams);
  const int64_t all_phases = s.chains.size() * s.phases;
  double total = 0;
  for (size_t i = 0; i < s.chains.size(); ++i) {
    const Video video{1, 1, part(given, i * s.phases, s.phases, is_double), part(given, all_phases, s.tools, is_double),
                      part(given, all_phases + 2 * s.tools, has_configs, is_double)};
    const double value =
        s.chains[i]->step(s.memory(memory, i), t, video, s.marginals(out, i, 1), s.marginals(out + s.num_marginals(), i, 1));
    if (!(value > -INFINITY)) return value;
    total += value;
  }
  return total;
}

// out: marginals of phases (chains, count, L) and tools (count, K, 2).
void hmmjax_stream_smooth(void* streams, double* memory, int64_t frames, int64_t count, double* out) {
  const Streams& s = *static_cast<Streams*>(streams);
  for (size_t i = 0; i < s.chains.size(); ++i)
    s.chains[i]->smooth(s.memory(memory, i), frames, count, s.marginals(out, i, count));
}

// Logarithms: filtered (chains, L, C), phases (chains, L), configs (chains, C).
void hmmjax_stream_read(void* streams, double* memory, int64_t t, double* filtered, double* phases, double* configs) {
  const Streams& s = *static_cast<Streams*>(streams);
  for (size_t i = 0; i < s.chains.size(); ++i)
    s.chains[i]->read(s.memory(memory, i), t, filtered + i * s.phases * s.configs, phases + i * s.phases,
                      configs + i * s.configs);
}

double hmmjax_stream_total(void* streams, double* memory, int64_t t) {
  const Streams& s = *static_cast<Streams*>(streams);
  double total = 0;
  for (size_t i = 0; i < s.chains.size(); ++i) total += s.chains[i]->log_likelihood(s.memory(memory, i), t);
  return total;
}

void hmmjax_stream_write(void* streams, double* memory, int64_t t, const double* filtered, const double* phases,
                         const double* configs, double log_likelihood) {
  const Streams& s = *static_cast<Streams*>(streams);
  for (size_t i = 0; i < s.chains.size(); ++i)
    s.chains[i]->write(s.memory(memory, i), t, filtered + i * s.phases * s.configs, phases + i * s.phases,
                       configs + i * s.configs, i ? 0 : log_likelihood);
}

#pragma GCC visibility pop
}
