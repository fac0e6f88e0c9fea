// The version of marea, as summaries and checkpoints name it.
#pragma once

namespace marea {

const char* Version();  // "0.1.0"

}  // namespace marea
