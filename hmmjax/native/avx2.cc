// The recursions for AVX2 and FMA.
#include "chain.h"
#ifdef __AVX2__
#include "recursions.h"
#endif

namespace hmmjax {

const Recursions* avx2() {
#ifdef __AVX2__
  static constexpr Recursions all = recursions("avx2");
  return &all;
#else
  return nullptr;
#endif
}

}  // namespace hmmjax
