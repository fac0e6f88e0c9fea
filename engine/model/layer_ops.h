// Steps of a layer with a backward of our own, where torch's would compute or move more than is
// needed. In grad mode they are nodes of torch's graph, otherwise plain calls.
//
// Thread rule: pure functions on tensors; on a GPU they enqueue on the calling thread's stream.
// Failures are thrown as c10::Error.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/model/attention.h"

namespace marea {

// A layer's last step: middle + inner @ matrix (+ bias, where it is defined). middle is
// [sequences, length, hidden], inner [sequences, length, intermediate], matrix
// [intermediate, hidden], which may be a transposed view.
//
// In grad mode the sum itself is not computed: backward runs a layer again for what its gradients
// need, and nobody reads the layer's output then. The result has its shape and no value.
at::Tensor AddLastProduct(const at::Tensor& middle, const at::Tensor& inner,
                          const at::Tensor& matrix, const at::Tensor& bias);

// On a GPU, ApplyRope (attention.h) in one kernel, on heads as a projection leaves them: x and the
// result are [sequences, length, heads * head_dim].
at::Tensor RotateHeads(const at::Tensor& x, const RopeTable& table);

// On a GPU: silu(gate) * up in one kernel.
at::Tensor SiluTimes(const at::Tensor& gate, const at::Tensor& up);

}  // namespace marea
