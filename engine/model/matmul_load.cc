#include "engine/model/matmul_load.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "engine/model/tensor_views.h"
#include "engine/model/torch_guard.h"

namespace marea {
namespace {

constexpr int64_t kCpuSize = 2048;
constexpr int64_t kGpuSize = 8192;
// Some ten milliseconds on the fastest GPU: waiting for the stream costs thousandths of that.
constexpr int kGpuProducts = 16;

constexpr const char* kWhat = "the matrix product";

}  // namespace

struct MatmulLoad::State {
  int64_t size;
  int products;  // of one Run
  c10::Device device;
  at::Tensor left, right, product;

  void Multiply() {
    for (int i = 0; i < products; ++i) at::mm_out(product, left, right);
    if (!device.is_cuda()) return;
    const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
    guard.synchronizeStream(guard.getStream(device));
  }

  // An element of the product is a sum of `size` products of normal numbers: its spread is
  // sqrt(size), of which rounding takes less than a hundredth.
  Status Check() const {
    const auto to_double = [](const at::Tensor& tensor) {
      return tensor.contiguous().to(at::kCPU).to(at::kDouble);
    };
    for (const int64_t at : {int64_t{0}, size / 3, size - 1}) {
      const int64_t column = size - 1 - at / 2;
      const double expected =
          at::dot(to_double(left.select(0, at)), to_double(right.select(1, column))).item<double>();
      const double actual = to_double(product.select(0, at).select(0, column)).item<double>();
      const double tolerance = 0.02 * std::sqrt(static_cast<double>(size));
      if (std::abs(actual - expected) <= tolerance) continue;
      return Status::Failed(
          fmt::format("a matrix product is wrong: {} at row {}, column {}, instead of {}", actual,
                      at, column, expected));
    }
    return Status::Ok();
  }
};

MatmulLoad::MatmulLoad(std::unique_ptr<State> state) : state_(std::move(state)) {}
MatmulLoad::~MatmulLoad() = default;

Result<std::unique_ptr<MatmulLoad>> MatmulLoad::Make(Precision precision, std::optional<int> gpu) {
  const c10::Device device = gpu.has_value()
                                 ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*gpu))
                                 : c10::Device(c10::kCPU);
  auto state = std::make_unique<State>(State{.size = gpu.has_value() ? kGpuSize : kCpuSize,
                                             .products = gpu.has_value() ? kGpuProducts : 1,
                                             .device = device,
                                             .left = {},
                                             .right = {},
                                             .product = {}});
  State& made = *state;
  MAREA_RETURN_IF_ERROR(Guarded(kWhat, [&] {
    const at::NoGradGuard no_grad;
    const auto options = at::TensorOptions().dtype(TypeOf(precision)).device(device);
    made.left = at::randn({made.size, made.size}, options);
    made.right = at::randn({made.size, made.size}, options);
    made.product = at::empty({made.size, made.size}, options);
    made.Multiply();
    return made.Check();
  }));
  return std::unique_ptr<MatmulLoad>(new MatmulLoad(std::move(state)));
}

Status MatmulLoad::Run() {
  return Guarded(kWhat, [&] {
    const at::NoGradGuard no_grad;
    state_->Multiply();
    return Status::Ok();
  });
}

double MatmulLoad::flop() const {
  const auto size = static_cast<double>(state_->size);
  return 2 * size * size * size * state_->products;
}

}  // namespace marea
