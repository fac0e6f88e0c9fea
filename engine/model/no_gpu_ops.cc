// What a build without CUDA has in the place of gpu_ops.cc and torch_cuda.cc: no run computes on a
// GPU there.
#include "engine/model/gpu_ops.h"
#include "engine/model/torch_cuda.h"
#include "io/check.h"

namespace marea {
namespace {

[[noreturn]] void NoCuda() {
  MAREA_CHECK(false, "a build without CUDA computes on no GPU");
}

}  // namespace

namespace gpu {

void AddInto(float* /*target*/, const at::Tensor& /*source*/, Accumulate /*accumulate*/) {
  NoCuda();
}

void EmbedForward(const ModelShape& /*model*/, const BatchShape& /*batch*/, Precision /*precision*/,
                  const int32_t* /*tokens*/, ByteSpans /*weights*/, ByteSpan /*output*/) {
  NoCuda();
}

void EmbedBackward(const ModelShape& /*model*/, const BatchShape& /*batch*/,
                   Precision /*precision*/, const int32_t* /*tokens*/, ByteSpan /*gradient*/,
                   float* /*token_accumulator*/, float* /*position_accumulator*/,
                   Accumulate /*accumulate*/) {
  NoCuda();
}

void CrossEntropy(const at::Tensor& /*hidden*/, const at::Tensor& /*output_matrix*/,
                  const LossTargets& /*targets*/, int64_t /*chunk_rows*/, double* /*loss_sum*/) {
  NoCuda();
}

void CrossEntropyGradients(const at::Tensor& /*hidden*/, const at::Tensor& /*output_matrix*/,
                           const LossTargets& /*targets*/, int64_t /*chunk_rows*/, double /*scale*/,
                           at::Tensor& /*hidden_gradient*/, const OutputGradient& /*output*/,
                           double* /*loss_sum*/) {
  NoCuda();
}

void Reduce(ByteSpans /*uses*/, ByteSpan /*held*/, Precision /*held_precision*/,
            double* /*square_sum*/) {
  NoCuda();
}

at::Tensor Rotate(const at::Tensor& /*x*/, const RopeTable& /*table*/, Turn /*turn*/) {
  NoCuda();
}

at::Tensor SiluTimes(const at::Tensor& /*gate*/, const at::Tensor& /*up*/) {
  NoCuda();
}

std::pair<at::Tensor, at::Tensor> SiluTimesGradients(const at::Tensor& /*gate*/,
                                                     const at::Tensor& /*up*/,
                                                     const at::Tensor& /*output_gradient*/) {
  NoCuda();
}

Status Update(const AdamWChunk& /*chunk*/, const double* /*gradient_scale*/,
              const AdamWConstants& /*constants*/, int /*gpu*/) {
  NoCuda();
}

}  // namespace gpu

Status LoadTorchCuda() {
  return Status::Unavailable("this build of marea has no CUDA");
}

void* TorchComputeStream(int /*gpu*/) {
  NoCuda();
}

Status ReserveTorchMemory(int /*gpu*/, uint64_t /*bytes*/) {
  NoCuda();
}

void EnterComputeStream(int /*gpu*/) {
  NoCuda();
}

TorchMemory ReadTorchMemory(int /*gpu*/) {
  NoCuda();
}

}  // namespace marea
