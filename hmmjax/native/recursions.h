// The recursions over one video, included once per instruction set.
#pragma once
#include "backward.h"
#include "best_path.h"
#include "filter.h"
#include "stream.h"

namespace {

void* prepare(const Tables& tables, bool logs) { return new Model(tables, logs); }

void release(void* model) { delete static_cast<Model*>(model); }

constexpr Recursions recursions(const char* name) {
  return {name, prepare, release, log_normalizer, gradient, filter, viterbi, stream};
}

}  // namespace
