// Steps of a layer with kernels of their own against the ops of torch that they replace, on the
// same GPU: the same bits, forward and backward.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "engine/model/layer_ops.h"
#include "engine/model/torch_cuda.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

at::Tensor Random(at::IntArrayRef sizes, at::ScalarType type) {
  return (at::randn(sizes, at::TensorOptions(at::kFloat)) * 2).to(type).to(at::kCUDA);
}

using Formula = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

class LayerOpsOnGpu : public GpuTest, public testing::WithParamInterface<at::ScalarType> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_OK(LoadTorchCuda());
  }

  // The value without a graph, and the gradients of every input.
  static void ExpectSameBits(const Formula& ours, const Formula& theirs,
                             const std::vector<at::Tensor>& inputs) {
    at::Tensor value;
    {
      const at::AutoGradMode no_graph(false);
      value = theirs(inputs);
      EXPECT_TRUE(at::equal(ours(inputs), value));
    }
    const at::AutoGradMode graph(true);
    const at::Tensor gradient = Random(value.sizes(), value.scalar_type());
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.detach().set_requires_grad(true));
    const auto found = torch::autograd::grad({ours(leaves)}, leaves, {gradient});
    const auto expected = torch::autograd::grad({theirs(leaves)}, leaves, {gradient});
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_TRUE(at::equal(found[i], expected[i])) << "gradient of input " << i;
    }
  }
};

TEST_P(LayerOpsOnGpu, TurnedHeads) {
  for (const int64_t head_dim : {6, 64, 128}) {
    for (const int64_t heads : {1, 5}) {
      const int64_t length = 33;
      ModelConfig config;
      config.head_dim = static_cast<uint32_t>(head_dim);
      config.rope_theta = 10000;
      const RopeTable table = MakeRopeTable(config, length, GetParam(), c10::Device(at::kCUDA, 0));
      const auto split = [&](const at::Tensor& x) {
        return x.view({2, length, heads, head_dim}).transpose(1, 2);
      };
      ExpectSameBits([&](const auto& in) { return split(RotateHeads(in[0], table)); },
                     [&](const auto& in) { return ApplyRope(split(in[0]), table); },
                     {Random({2, length, heads * head_dim}, GetParam())});
    }
  }
}

TEST_P(LayerOpsOnGpu, GatedSilu) {
  for (const int64_t width : {1, 257, 1408}) {
    ExpectSameBits([](const auto& in) { return SiluTimes(in[0], in[1]); },
                   [](const auto& in) { return at::silu(in[0]) * in[1]; },
                   {Random({3, 65, width}, GetParam()), Random({3, 65, width}, GetParam())});
  }
}

TEST_P(LayerOpsOnGpu, LastProduct) {
  ExpectSameBits([](const auto& in) { return AddLastProduct(in[0], in[1], in[2].t(), {}); },
                 [](const auto& in) { return in[0] + at::linear(in[1], in[2]); },
                 {Random({2, 64, 96}, GetParam()), Random({2, 64, 256}, GetParam()),
                  Random({96, 256}, GetParam())});
  ExpectSameBits([](const auto& in) { return AddLastProduct(in[0], in[1], in[2].t(), in[3]); },
                 [](const auto& in) { return in[0] + at::linear(in[1], in[2], in[3]); },
                 {Random({2, 64, 96}, GetParam()), Random({2, 64, 256}, GetParam()),
                  Random({96, 256}, GetParam()), Random({96}, GetParam())});
}

INSTANTIATE_TEST_SUITE_P(Types, LayerOpsOnGpu, testing::Values(at::kBFloat16, at::kFloat));

}  // namespace
}  // namespace marea
