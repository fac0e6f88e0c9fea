// Which way heads are turned by their positions' angles. Apart from attention.h, which has torch.
#pragma once

#include <cstdint>

namespace marea {

// Forth is the embedding; back is its gradient, the turn by the opposite angle.
enum class Turn : uint8_t { kForth, kBack };

}  // namespace marea
