// Entry points of XLA's foreign function interface: they find each video's arrays and spread videos over threads.
//
// Operands may have further leading axes, of models (from jax.vmap): of their full size, or of size 1 if all models
// share the operand. Results have them in full.
//
// Frames of videos lie in rows of equal size, or all in a single row, one video after another.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "chain.h"
#include "loop.h"
#include "xla/ffi/api/ffi.h"

namespace hmmjax {
namespace {

// The shapes of a call: models x videos x frames, and how to find each operand's part.
class Shapes {
 public:
  Shapes(const Buffer& lengths, const Buffer& phases, const Buffer& initial)
      : lead_(lengths.dimensions().size() - 1) {
    const auto all = {lengths, phases, initial};
    for (size_t i = 0; i < lead_; ++i) {
      int64_t n = 1;
      for (const auto& x : all) n = std::max(n, x.dimensions()[i]);
      sizes_.push_back(n);
    }
    videos = lengths.dimensions()[lead_];
    rows_ = phases.dimensions()[lead_];
    frames = phases.dimensions()[lead_ + 1];
    phases_ = initial.dimensions()[lead_];
    configs = initial.dimensions()[lead_ + 1];
  }

  // Widens the leading axes to those of another operand.
  void include(const Buffer& x) {
    for (size_t i = 0; i < lead_; ++i) sizes_[i] = std::max(sizes_[i], x.dimensions()[i]);
  }

  int64_t models() const { return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>()); }
  int64_t phases() const { return phases_; }

  // Where a model's part of an operand begins, in parts.
  int64_t part(const Buffer& x, int64_t model) const {
    int64_t at = 0, stride = 1;
    for (size_t i = lead_; i-- > 0;) {
      const int64_t n = x.dimensions()[i];
      at += (n == 1 ? 0 : model % sizes_[i]) * stride;
      stride *= n;
      model /= sizes_[i];
    }
    return at;
  }

  // Finds where videos begin and end; to be called after `include`.
  void locate(const Buffer& x) {
    const int32_t* given = x.typed_data<int32_t>();
    for (int64_t i = 0; i < models() * videos; ++i) {
      const int64_t video = i % videos, n = given[part(x, i / videos) * videos + video];
      starts_.push_back(rows_ == videos ? video * frames : video ? starts_.back() + lengths_.back() : 0);
      const int64_t room = rows_ == videos ? frames : frames - starts_.back();
      lengths_.push_back(std::clamp<int64_t>(n, 0, room));
    }
  }
  // Frames of video i, of those of all models.
  int64_t length(int64_t i) const { return lengths_[i]; }
  // Where they begin in an operand, and in a result, in frames.
  int64_t start(const Buffer& x, int64_t i) const { return part(x, i / videos) * rows_ * frames + starts_[i]; }
  int64_t start(int64_t i) const { return i / videos * rows_ * frames + starts_[i]; }

  int64_t dimension(const Buffer& x, size_t axis) const { return x.dimensions()[lead_ + axis]; }

  int64_t videos, frames, configs;

 private:
  size_t lead_;
  int64_t phases_, rows_;
  std::vector<int64_t> sizes_, starts_, lengths_;
};

struct Operands {
  Buffer initial, transition, blocks, phases, tools, configs, lengths;
  ffi::Span<const int64_t> block_sizes;
};

In at(const Buffer& x, int64_t offset) {
  const bool is_double = x.element_type() == ffi::DataType::F64;
  return {static_cast<const char*>(x.untyped_data()) + offset * (is_double ? 8 : 4), is_double};
}

Out at(Result& x, int64_t offset) {
  const bool is_double = x->element_type() == ffi::DataType::F64;
  return {static_cast<char*>(x->untyped_data()) + offset * (is_double ? 8 : 4), is_double};
}

void put(const Out& x, double value) {
  if (x.is_double)
    *static_cast<double*>(x.data) = value;
  else
    *static_cast<float*>(x.data) = static_cast<float>(value);
}

void clear(Result& x) {
  if (x->size_bytes()) std::memset(x->untyped_data(), 0, x->size_bytes());
}

ffi::Error check(const Operands& o) {
  for (const auto& x : {o.initial, o.transition, o.blocks, o.phases, o.tools, o.configs})
    if (x.element_type() != ffi::DataType::F32 && x.element_type() != ffi::DataType::F64)
      return ffi::Error::InvalidArgument("hmmjax's native recursions take float32 or float64 arrays.");
  if (o.lengths.element_type() != ffi::DataType::S32 || o.block_sizes.size() > 64)
    return ffi::Error::InvalidArgument("hmmjax's native recursions take int32 lengths and at most 64 blocks.");
  return ffi::Error::Success();
}

// Calls work(prepared model, video, index of the result) for every video of every model, the longest videos first.
// logs: whether models are prepared for paths.
ffi::Error for_each_video(ffi::ThreadPool& pool, const Operands& o, const Shapes& s,
                          const std::function<void(const void*, const Video&, int64_t)>& work, bool logs = false) {
  const Recursions& r = fastest();
  const int64_t models = s.models(), total = models * s.videos, L = s.phases(), C = s.configs;
  const int64_t K = s.dimension(o.tools, 2), per_phase = s.dimension(o.blocks, 1), joint = s.dimension(o.configs, 2);
  std::vector<std::shared_ptr<void>> prepared(models);
  for (int64_t m = 0; m < models; ++m) {
    const Tables tables{L, C, __builtin_ctzll(C), static_cast<int64_t>(o.block_sizes.size()), o.block_sizes.begin(),
                        at(o.initial, s.part(o.initial, m) * L * C), at(o.transition, s.part(o.transition, m) * L * L),
                        at(o.blocks, s.part(o.blocks, m) * L * per_phase)};
    prepared[m] = std::shared_ptr<void>(r.prepare(tables, logs), r.release);
  }
  std::vector<int64_t> order(total);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return s.length(a) > s.length(b); });
  Loop::run(pool, total, [&](int64_t n) {
    const int64_t i = order[n];
    const auto frames = [&](const Buffer& x, int64_t size) {
      if (size == 0) return In{};
      return at(x, s.start(x, i) * size);
    };
    const Video v{s.frames, s.length(i), frames(o.phases, L), frames(o.tools, K * 2), frames(o.configs, joint)};
    work(prepared[i / s.videos].get(), v, i);
  });
  return ffi::Error::Success();
}

Shapes shapes_of(const Operands& o) {
  Shapes s(o.lengths, o.phases, o.initial);
  for (const auto& x : {o.transition, o.blocks, o.tools, o.configs}) s.include(x);
  s.locate(o.lengths);
  return s;
}

using Sizes = ffi::Span<const int64_t>;

ffi::Error log_normalizer(ffi::ThreadPool pool, Buffer initial, Buffer transition, Buffer blocks, Buffer phases,
                          Buffer tools, Buffer configs, Buffer lengths, Sizes sizes, Result value) {
  const Operands o{initial, transition, blocks, phases, tools, configs, lengths, sizes};
  if (auto error = check(o); error.failure()) return error;
  return for_each_video(pool, o, shapes_of(o), [&](const void* model, const Video& v, int64_t i) {
    put(at(value, i), fastest().log_normalizer(model, v));
  });
}

// Results are derivatives of each video's log-normalizer; those of tables have size 0 if they are not wanted.
ffi::Error gradient(ffi::ThreadPool pool, Buffer initial, Buffer transition, Buffer blocks, Buffer phases, Buffer tools,
                    Buffer configs, Buffer lengths, Sizes sizes, Result value, Result d_initial, Result d_transition,
                    Result d_blocks, Result d_phases, Result d_tools, Result d_configs) {
  const Operands o{initial, transition, blocks, phases, tools, configs, lengths, sizes};
  if (auto error = check(o); error.failure()) return error;
  const Shapes s = shapes_of(o);
  for (Result* x : {&d_initial, &d_transition, &d_blocks, &d_phases, &d_tools, &d_configs}) clear(*x);
  const bool tables = d_transition->element_count() > 0;
  const int64_t L = s.phases(), C = s.configs, K = s.dimension(tools, 2), per_phase = s.dimension(blocks, 1);
  const int64_t joint = s.dimension(configs, 2);
  return for_each_video(pool, o, s, [&](const void* model, const Video& v, int64_t i) {
    Gradient out;
    out.tables = tables;
    out.phases = at(d_phases, s.start(i) * L);
    if (K) out.tools = at(d_tools, s.start(i) * K * 2);
    if (joint) out.configs = at(d_configs, s.start(i) * C);
    if (tables) {
      out.initial = at(d_initial, i * L * C);
      out.transition = at(d_transition, i * L * L);
      out.blocks = at(d_blocks, i * L * per_phase);
    }
    put(at(value, i), fastest().gradient(model, v, out));
  });
}

ffi::Error filter(ffi::ThreadPool pool, Buffer initial, Buffer transition, Buffer blocks, Buffer phases, Buffer tools,
                  Buffer configs, Buffer lengths, Sizes sizes, Result value, Result m_phases, Result m_tools) {
  const Operands o{initial, transition, blocks, phases, tools, configs, lengths, sizes};
  if (auto error = check(o); error.failure()) return error;
  const Shapes s = shapes_of(o);
  clear(m_phases), clear(m_tools);
  const int64_t L = s.phases(), K = s.dimension(*m_tools, 2);
  return for_each_video(pool, o, s, [&](const void* model, const Video& v, int64_t i) {
    const Marginals out{at(m_phases, s.start(i) * L), at(m_tools, s.start(i) * K * 2)};
    put(at(value, i), fastest().filter(model, v, out));
  });
}

ffi::Error viterbi(ffi::ThreadPool pool, Buffer initial, Buffer transition, Buffer blocks, Buffer phases, Buffer tools,
                   Buffer configs, Buffer lengths, Sizes sizes, Result value, Result path_phases, Result path_configs) {
  const Operands o{initial, transition, blocks, phases, tools, configs, lengths, sizes};
  if (auto error = check(o); error.failure()) return error;
  const Shapes s = shapes_of(o);
  clear(path_phases), clear(path_configs);
  return for_each_video(pool, o, s, [&](const void* model, const Video& v, int64_t i) {
    int32_t* p = static_cast<int32_t*>(path_phases->untyped_data()) + s.start(i);
    int32_t* c = static_cast<int32_t*>(path_configs->untyped_data()) + s.start(i);
    put(at(value, i), fastest().viterbi(model, v, p, c));
  }, true);
}

template <int results>
auto operands() {
  return with_arrays<0, results>(with_arrays<7, 0>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()).Attr<Sizes>("sizes"));
}

}  // namespace
}  // namespace hmmjax

#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(hmmjax_log_normalizer, hmmjax::log_normalizer, hmmjax::operands<1>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(hmmjax_gradient, hmmjax::gradient, hmmjax::operands<7>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(hmmjax_filter, hmmjax::filter, hmmjax::operands<3>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(hmmjax_viterbi, hmmjax::viterbi, hmmjax::operands<3>());

extern "C" const char* hmmjax_instruction_set() { return hmmjax::fastest().name; }

#pragma GCC visibility pop
