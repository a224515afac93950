// Choice of the instruction set, and what belongs to none: every processor runs this file.
#include <cstdlib>
#include <cstring>

#include "chain.h"

namespace hmmjax {

const Recursions& fastest() {
  static const Recursions& chosen = [&]() -> const Recursions& {
#if defined(__x86_64__)
    const char* wanted = std::getenv("HMMJAX_NATIVE");
    const auto allowed = [&](const Recursions* r) { return r && (!wanted || !std::strcmp(wanted, r->name)); };
    __builtin_cpu_init();
    if (allowed(avx512()) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("fma"))
      return *avx512();
    if (allowed(avx2()) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return *avx2();
#endif
    return *baseline();
  }();
  return chosen;
}

Stream::~Stream() = default;

}  // namespace hmmjax
