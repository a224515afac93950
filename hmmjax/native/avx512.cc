// The recursions for AVX-512.
#include "chain.h"
#ifdef __AVX512F__
#include "recursions.h"
#endif

namespace hmmjax {

const Recursions* avx512() {
#ifdef __AVX512F__
  static constexpr Recursions all = recursions("avx512");
  return &all;
#else
  return nullptr;
#endif
}

}  // namespace hmmjax
