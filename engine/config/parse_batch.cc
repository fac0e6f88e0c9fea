#include <limits>

#include "engine/config/section_parsers.h"

namespace marea {
namespace {

constexpr std::string_view kTrain = "train_batch_size";
constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
constexpr std::string_view kAccumulation = "gradient_accumulation_steps";

// Transformers' per_device_train_batch_size and gradient_accumulation_steps.
constexpr uint64_t kTrainerMicroBatch = 8;
constexpr uint64_t kTrainerAccumulation = 1;

struct Triple {
  std::optional<uint64_t> train;
  std::optional<uint64_t> micro;
  std::optional<uint64_t> accumulation;
};

Triple ReadTriple(ConfigSection& top) {
  const auto read = [&](std::string_view key) -> std::optional<uint64_t> {
    if (top.IsAuto(key)) return std::nullopt;
    const std::optional<uint32_t> value = top.Count32(key);
    return value.has_value() ? std::optional<uint64_t>(*value) : std::nullopt;
  };
  return {read(kTrain), read(kMicro), read(kAccumulation)};
}

// --micro-batch. The global batch decides what is trained, so it stays where the file fixes it and
// the accumulation follows.
void ApplyMicroBatch(uint32_t micro_batch, ConfigSection& top, Triple& triple) {
  if (triple.micro.has_value() && *triple.micro != micro_batch) {
    top.log().Notice(
        fmt::format("--micro-batch {} replaces {} = {}", micro_batch, kMicro, *triple.micro));
    if (triple.train.has_value()) triple.accumulation.reset();
  }
  triple.micro = micro_batch;
}

// Fills what is missing, as DeepSpeed does; with what Transformers uses where "auto" leaves it
// open. False if nothing says how large a batch is.
bool FillTriple(ConfigSection& top, uint64_t world, Triple& triple) {
  if (!triple.train.has_value() && !triple.micro.has_value()) {
    if (!top.IsAuto(kMicro) && !top.IsAuto(kTrain)) return false;
    triple.micro = kTrainerMicroBatch;
  }
  if (!triple.train.has_value()) {
    if (!triple.accumulation.has_value()) triple.accumulation = kTrainerAccumulation;
    triple.train = *triple.micro * *triple.accumulation * world;
    return true;
  }
  // Divisions round down, as in DeepSpeed; the check of the product follows.
  if (!triple.micro.has_value()) {
    if (!triple.accumulation.has_value()) triple.accumulation = 1;
    triple.micro = *triple.train / world / *triple.accumulation;
  }
  if (!triple.accumulation.has_value()) triple.accumulation = *triple.train / *triple.micro / world;
  return true;
}

}  // namespace

void ParseBatch(ConfigSection& top, const ConfigOverrides& overrides, TrainingConfig& config) {
  Triple triple = ReadTriple(top);
  if (!top.log().ok()) return;
  if (overrides.micro_batch.has_value()) ApplyMicroBatch(*overrides.micro_batch, top, triple);
  const uint64_t world = overrides.world_size;
  if (!FillTriple(top, world, triple)) {
    top.log().Fail(fmt::format("neither {} nor {} is given; add one of them, or pass --micro-batch",
                               kTrain, kMicro));
    return;
  }
  // 32-bit factors: the product of two fits, the third may not.
  const __uint128_t product =
      static_cast<__uint128_t>(*triple.micro) * *triple.accumulation * world;
  if (product != *triple.train || product == 0) {
    top.log().Fail(fmt::format(
        "the batch sizes contradict each other: {} is {}, but {} {} x {} {} x {} rank(s) is {}; "
        "remove one of the three",
        kTrain, *triple.train, kMicro, *triple.micro, kAccumulation, *triple.accumulation, world,
        static_cast<uint64_t>(product)));
    return;
  }
  const std::pair<std::string_view, uint64_t> values[] = {
      {kTrain, *triple.train}, {kMicro, *triple.micro}, {kAccumulation, *triple.accumulation}};
  for (const auto& [key, value] : values) {
    if (top.IsAuto(key)) top.log().Filled(std::string(key), value);
  }
  config.batch.train_batch_size = *triple.train;
  config.batch.micro_batch = static_cast<uint32_t>(*triple.micro);
  config.batch.accumulation_steps = static_cast<uint32_t>(*triple.accumulation);
}

}  // namespace marea
