// The shards of one chunk, in both precisions, and an independent AdamW to hold the kernels to.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "engine/optim/adamw.h"
#include "engine/optim/split_master.h"

namespace marea {

enum class WeightForm { kSplit, kFp32 };
enum class GradientForm { kBf16, kFp32 };

// What AdamW reads and writes. Both forms of weight and gradient are kept; `Chunk` shows one.
struct AdamWShards {
  explicit AdamWShards(size_t elements)
      : weight_bf16(elements),
        master_low(elements),
        gradient_bf16(elements),
        weight_fp32(elements),
        gradient_fp32(elements),
        moment1(elements),
        moment2(elements) {}

  AdamWChunk Chunk(WeightForm weight, GradientForm gradient, size_t first, size_t elements,
                   float gradient_scale = 1.0f) {
    AdamWChunk chunk;
    if (weight == WeightForm::kSplit) {
      chunk.weight_bf16 = weight_bf16.data() + first;
      chunk.master_low = master_low.data() + first;
    } else {
      chunk.weight_fp32 = weight_fp32.data() + first;
    }
    if (gradient == GradientForm::kBf16) {
      chunk.gradient_bf16 = gradient_bf16.data() + first;
    } else {
      chunk.gradient_fp32 = gradient_fp32.data() + first;
    }
    chunk.moment1 = moment1.data() + first;
    chunk.moment2 = moment2.data() + first;
    chunk.gradient_scale = gradient_scale;
    chunk.elements = elements;
    return chunk;
  }

  void SetWeight(size_t i, float master) {
    weight_fp32[i] = master;
    const SplitFloat split = SplitMaster(master);
    weight_bf16[i] = split.high;
    master_low[i] = split.low;
  }

  float Master(WeightForm form, size_t i) const {
    return form == WeightForm::kSplit ? JoinMaster(weight_bf16[i], master_low[i]) : weight_fp32[i];
  }

  bool SameBits(const AdamWShards& other) const {
    return Same(weight_bf16, other.weight_bf16) && Same(master_low, other.master_low) &&
           Same(weight_fp32, other.weight_fp32) && Same(moment1, other.moment1) &&
           Same(moment2, other.moment2) && Same(gradient_bf16, other.gradient_bf16) &&
           Same(gradient_fp32, other.gradient_fp32);
  }

  std::vector<uint16_t> weight_bf16, master_low, gradient_bf16;
  std::vector<float> weight_fp32, gradient_fp32, moment1, moment2;

 private:
  template <typename T>
  static bool Same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
  }
};

// Fills every shard with values of all kinds: ordinary ones, any bit pattern at all, and the places
// where arithmetic changes its rules.
inline void FillWithEverything(AdamWShards& shards, uint32_t seed) {
  std::mt19937 random(seed);
  const float kSpecial[] = {0.0f,
                            -0.0f,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0xffc01234u),  // NaNs with a payload and a sign
                            std::bit_cast<float>(0x7f800001u),  // signalling
                            std::numeric_limits<float>::denorm_min(),
                            -std::numeric_limits<float>::denorm_min(),
                            std::bit_cast<float>(0x007fffffu),  // largest subnormal
                            std::numeric_limits<float>::min(),
                            std::numeric_limits<float>::max(),
                            -std::numeric_limits<float>::max(),
                            1e-30f,
                            3e19f,
                            1.0f};
  const auto draw = [&](float scale) {
    switch (random() % 8) {
      case 0:
        return kSpecial[random() % std::size(kSpecial)];
      case 1:
        return std::bit_cast<float>(static_cast<uint32_t>(random()));
      default:
        return scale * (static_cast<float>(random() % 20001) / 10000.0f - 1.0f);
    }
  };
  for (size_t i = 0; i < shards.moment1.size(); ++i) {
    shards.SetWeight(i, draw(0.1f));
    shards.gradient_fp32[i] = draw(0.01f);
    shards.gradient_bf16[i] = SplitMaster(draw(0.01f)).high;
    shards.moment1[i] = draw(0.01f);
    shards.moment2[i] = std::fabs(draw(0.0001f));
  }
}

inline float Canonical(float value) {
  return value == value ? value : std::bit_cast<float>(0x7fc00000u);
}

// AdamW one element at a time, straight from adamw.h. REQUIRES: NaN weights only as a split leaves
// them.
inline void ReferenceAdamW(const AdamWChunk& chunk, const AdamWConstants& constants) {
  for (size_t i = 0; i < chunk.elements; ++i) {
    const bool split = chunk.weight_bf16 != nullptr;
    float weight =
        split ? JoinMaster(chunk.weight_bf16[i], chunk.master_low[i]) : chunk.weight_fp32[i];
    float gradient = chunk.gradient_bf16 != nullptr ? FloatFromBf16(chunk.gradient_bf16[i])
                                                    : chunk.gradient_fp32[i];
    gradient *= chunk.gradient_scale;
    if (constants.l2_weight_decay != 0.0f) {
      gradient = std::fma(constants.l2_weight_decay, weight, gradient);
    } else {
      weight *= constants.decay_factor;
    }
    float& moment1 = chunk.moment1[i];
    float& moment2 = chunk.moment2[i];
    moment1 = std::fma(gradient - moment1, constants.one_minus_beta1, moment1);
    moment2 = std::fma(constants.one_minus_beta2 * gradient, gradient, moment2 * constants.beta2);
    const float denominator =
        std::fma(std::sqrt(moment2), constants.inverse_sqrt_bias_correction2, constants.epsilon);
    weight = Canonical(std::fma(-constants.step_size, moment1 / denominator, weight));
    moment1 = Canonical(moment1);
    moment2 = Canonical(moment2);
    if (split) {
      const SplitFloat stored = SplitMaster(weight);
      chunk.weight_bf16[i] = stored.high;
      chunk.master_low[i] = stored.low;
    } else {
      chunk.weight_fp32[i] = weight;
    }
  }
}

}  // namespace marea
