// The recursions for every processor of the architecture.
#include "recursions.h"

namespace hmmjax {

const Recursions* baseline() {
  static constexpr Recursions all = recursions("baseline");
  return &all;
}

}  // namespace hmmjax
