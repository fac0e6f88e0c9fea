#include "engine/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <vector>

namespace marea {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Long wavelengths are stretched by `factor`, short ones kept, those between blended.
void ScaleFrequencies(const RopeScaling& scaling, std::vector<float>& frequencies) {
  const double original = scaling.original_max_positions;
  const double longest_kept = original / scaling.high_frequency_factor;
  const double shortest_stretched = original / scaling.low_frequency_factor;
  for (float& frequency : frequencies) {
    const double wavelength = 2 * kPi / frequency;
    if (wavelength < longest_kept) continue;
    if (wavelength > shortest_stretched) {
      frequency = static_cast<float>(frequency / scaling.factor);
      continue;
    }
    const double blend = (original / wavelength - scaling.low_frequency_factor) /
                         (scaling.high_frequency_factor - scaling.low_frequency_factor);
    frequency = static_cast<float>((1 - blend) * frequency / scaling.factor + blend * frequency);
  }
}

}  // namespace

at::Tensor CausalAttention(const at::Tensor& query, const at::Tensor& key,
                           const at::Tensor& value) {
  bool grouped = query.size(1) != key.size(1);
  at::Tensor keys = key;
  at::Tensor values = value;
  if (grouped && query.is_cuda() && query.scalar_type() == at::kFloat) {
    // FlashAttention is for 16 bits; the GPU's other kernel knows no groups.
    const int64_t heads_of_group = query.size(1) / key.size(1);
    keys = key.repeat_interleave(heads_of_group, 1);
    values = value.repeat_interleave(heads_of_group, 1);
    grouped = false;
  }
  at::Tensor out = at::scaled_dot_product_attention(query, keys, values, /*attn_mask=*/{},
                                                    /*dropout_p=*/0.0, /*is_causal=*/true,
                                                    /*scale=*/std::nullopt, grouped);
  return out.transpose(1, 2).reshape({query.size(0), query.size(2), query.size(1) * query.size(3)});
}

RopeTable MakeRopeTable(const ModelConfig& config, int64_t length, at::ScalarType type,
                        const c10::Device& device) {
  const int64_t dim = config.head_dim;
  // By ATen, not by hand: the power's last bit decides angles at far positions.
  const at::Tensor exponents = at::arange(0, dim, 2, at::kFloat) / dim;
  const at::Tensor base = at::pow(config.rope_theta, exponents).reciprocal();
  std::vector<float> frequencies(base.const_data_ptr<float>(),
                                 base.const_data_ptr<float>() + base.numel());
  if (config.rope_scaling) ScaleFrequencies(*config.rope_scaling, frequencies);
  const at::Tensor angles =
      at::outer(at::arange(length, at::kFloat),
                at::from_blob(frequencies.data(), {dim / 2}, at::TensorOptions(at::kFloat)));
  const at::Tensor both = at::cat({angles, angles}, -1);
  return {at::cos(both).to(type).to(device), at::sin(both).to(type).to(device)};
}

at::Tensor ApplyRope(const at::Tensor& x, const RopeTable& table) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return x * table.cosine + turned * table.sine;
}

}  // namespace marea
