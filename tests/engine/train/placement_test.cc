// The same bits whatever the placement: losses, norms and final weights of every variant equal
// those of the run with everything in VRAM.
#include <random>

#include "tests/engine/train/tiny_run.h"

namespace marea {
namespace {

struct Variant {
  const char* name;
  std::function<void(PlanSpec&)> respec;
};

std::vector<Variant> Variants() {
  const auto place = [](Tier tier, Tier partial, Tier activation, uint32_t wave, uint64_t stretch) {
    return [=](PlanSpec& spec) {
      Everywhere(spec, tier);
      spec.placement.partial = partial;
      spec.placement.activation = activation;
      spec.wave_size = wave;
      spec.chunk_elements = 4 * kGroupAlignElements;
      SetRings(spec, stretch);
    };
  };
  std::vector<Variant> variants = {
      {"RAM, one wave", place(Tier::kRam, Tier::kRam, Tier::kVram, 4, 2)},
      {"NVMe, one wave", place(Tier::kNvme, Tier::kRam, Tier::kVram, 4, 3)},
      {"NVMe, waves of 1, least rings", place(Tier::kNvme, Tier::kNvme, Tier::kRam, 1, 1)},
      {"NVMe, waves of 3", place(Tier::kNvme, Tier::kVram, Tier::kRam, 3, 2)},
      {"VRAM, waves of 2", place(Tier::kVram, Tier::kVram, Tier::kVram, 2, 1)},
  };
  // On a GPU the variants above run its optimizer, over paged states too; these the CPU's, or both.
  const auto update_on_gpu = [](Variant variant, std::function<bool(size_t)> chosen) {
    variant.respec = [respec = variant.respec, chosen](PlanSpec& spec) {
      for (size_t i = 0; i < spec.gpu_update.size(); ++i) spec.gpu_update[i] = chosen(i);
      respec(spec);
    };
    return variant;
  };
  if (TestsRunOnGpu()) {
    const size_t count = variants.size();
    for (size_t i = 0; i < count; ++i) {
      variants.push_back(update_on_gpu(variants[i], [](size_t) { return false; }));
      variants.push_back(update_on_gpu(variants[i], [](size_t group) { return group % 2 == 0; }));
    }
  }
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    variants.push_back({"mixed at random", [seed](PlanSpec& spec) {
                          std::mt19937_64 random(seed);
                          for (auto& homes : spec.placement.homes) {
                            for (Tier& tier : homes) tier = static_cast<Tier>(random() % 3);
                          }
                          spec.placement.partial = static_cast<Tier>(random() % 3);
                          spec.wave_size = 1 + static_cast<uint32_t>(random() % 4);
                          spec.chunk_elements = (1 + random() % 8) * kGroupAlignElements;
                          SetRings(spec, 1 + random() % 3);
                        }});
  }
  return variants;
}

void ExpectSameBits(const TinyOptions& base, bool every_variant) {
  TinyOptions options = base;
  options.respec = [](PlanSpec& spec) {
    Everywhere(spec, Tier::kVram);
    spec.placement.partial = Tier::kVram;
    spec.placement.activation = Tier::kVram;
    SetRings(spec, 1);
  };
  const Result<TinyResult> reference = RunTiny(options);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  const TinyResult& expected = reference.value();
  ASSERT_EQ(expected.losses.size(), base.steps);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  std::vector<Variant> variants = Variants();
  if (!every_variant) variants.erase(variants.begin() + 3, variants.end());
  for (const Variant& variant : variants) {
    options.respec = variant.respec;
    const Result<TinyResult> result = RunTiny(options);
    ASSERT_TRUE(result.ok()) << variant.name << ": " << result.status().message();
    EXPECT_EQ(result.value().losses, expected.losses) << variant.name;
    EXPECT_EQ(result.value().norms, expected.norms) << variant.name;
    EXPECT_TRUE(result.value().weights == expected.weights) << variant.name;
  }
}

TEST(Placement, Gpt2TiedBf16Clipped) {
  ExpectSameBits({.clipping = 0.5}, true);
}
TEST(Placement, Gpt2TiedBf16Unclipped) {
  ExpectSameBits({.clipping = 0}, false);
}
TEST(Placement, Gpt2UntiedFp32) {
  ExpectSameBits({.model = TinyGpt2(false), .bf16 = false}, true);
}
TEST(Placement, LlamaTiedFp32) {
  ExpectSameBits({.model = TinyLlama(true), .bf16 = false}, false);
}
TEST(Placement, LlamaUntiedBf16) {
  ExpectSameBits({.model = TinyLlama(false)}, true);
}

TEST(Placement, OneSlotOrTwo) {
  TinyOptions options{.respec = OnNvme};
  const TinyResult two = RunTiny(options).value();
  options.slots = 1;
  const TinyResult one = RunTiny(options).value();
  EXPECT_EQ(one.losses, two.losses);
  EXPECT_TRUE(one.weights == two.weights);
}

TEST(Placement, EverySimdLevel) {
  TinyOptions options{.respec = OnNvme};
  const TinyResult best = RunTiny(options).value();
  for (const SimdLevel level : AvailableSimdLevels()) {
    options.resetup = [level](RunSetup& setup) { setup.simd_level = level; };
    const TinyResult result = RunTiny(options).value();
    EXPECT_EQ(result.losses, best.losses) << SimdLevelName(level);
    EXPECT_TRUE(result.weights == best.weights) << SimdLevelName(level);
  }
}

TEST(Placement, FrozenGroupsKeepTheirWeights) {
  TinyOptions options{.model = TinyLlama(false)};
  const auto freeze = [](PlanSpec& spec, Tier tier) {
    ModelShape& model = const_cast<ModelShape&>(*spec.model);
    model.groups[0].frozen = true;
    model.groups[1].frozen = true;
    Everywhere(spec, tier);
    SetRings(spec, 2);
  };
  options.respec = [&](PlanSpec& spec) { freeze(spec, Tier::kVram); };
  const TinyResult vram = RunTiny(options).value();
  options.respec = [&](PlanSpec& spec) { freeze(spec, Tier::kNvme); };
  const TinyResult nvme = RunTiny(options).value();
  EXPECT_EQ(vram.losses, nvme.losses);
  EXPECT_TRUE(vram.weights == nvme.weights);
  EXPECT_LT(vram.losses.back(), vram.losses.front());
}

}  // namespace
}  // namespace marea
