// Flags as text become options, or one sentence that names flag and text.
#include <gtest/gtest.h>

#include "src/arguments.h"
#include "src/flag_values.h"
#include "src/messages.h"
#include "src/progress.h"
#include "src/run_flags.h"

namespace marea {
namespace {

using Words = std::vector<std::string>;

Result<RunOptions> ParseRun(const Words& words, OutputNeed output = OutputNeed::kFolder) {
  RunFlags flags;
  FlagSet set("marea train", "");
  AddRunFlags(set, flags);
  MAREA_ASSIGN_OR_RETURN([[maybe_unused]] const ParseOutcome outcome, set.Parse(words));
  return ToRunOptions(flags, output);
}

Words With(const Words& more) {
  Words words = {"--model", "m", "--data", "d", "--output", "o"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Flags, EveryFlagArrives) {
  const RunOptions options = ParseRun(With({"--config",
                                            "ds.json",
                                            "--sequence-length",
                                            "128",
                                            "--steps",
                                            "9",
                                            "--micro-batch",
                                            "3",
                                            "--learning-rate",
                                            "3e-4",
                                            "--eval-data",
                                            "e",
                                            "--eval-every",
                                            "5",
                                            "--device",
                                            "cpu",
                                            "--vram",
                                            "1GiB",
                                            "--ram",
                                            "40%",
                                            "--nvme",
                                            "a:8GiB",
                                            "--nvme=b",
                                            "--slots",
                                            "1",
                                            "--wave",
                                            "2",
                                            "--seed",
                                            "7",
                                            "--threads",
                                            "4",
                                            "--deterministic"}))
                                 .value();
  EXPECT_EQ(options.model_path, "m");
  EXPECT_EQ(options.data_path, "d");
  EXPECT_EQ(options.output_path, "o");
  EXPECT_EQ(options.config_path, "ds.json");
  EXPECT_EQ(options.sequence_length, 128u);
  EXPECT_EQ(options.steps, 9u);
  EXPECT_FALSE(options.epochs.has_value());
  EXPECT_EQ(options.micro_batch, 3u);
  EXPECT_EQ(options.learning_rate, 3e-4);
  EXPECT_EQ(options.eval_data_path, "e");
  EXPECT_EQ(options.eval_every, 5u);
  EXPECT_EQ(options.device, DeviceChoice::kCpu);
  EXPECT_EQ(options.vram->bytes, uint64_t{1} << 30);
  EXPECT_EQ(options.ram->fraction, 0.4);
  ASSERT_EQ(options.nvme.size(), 2u);
  EXPECT_EQ(options.nvme[0].path, "a");
  EXPECT_EQ(options.nvme[0].limit.bytes, uint64_t{8} << 30);
  EXPECT_EQ(options.nvme[1].path, "b");
  EXPECT_FALSE(options.nvme[1].limit.bytes.has_value());
  EXPECT_EQ(options.slots, 1u);
  EXPECT_EQ(options.wave_size, 2u);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.threads, 4u);
  EXPECT_TRUE(options.deterministic);
}

TEST(Flags, WhatIsNotGivenIsNotSet) {
  const RunOptions options = ParseRun(With({})).value();
  EXPECT_FALSE(options.steps || options.sequence_length || options.micro_batch || options.vram ||
               options.ram || options.wave_size || options.threads || options.eval_every);
  EXPECT_EQ(options.device, DeviceChoice::kAuto);
  EXPECT_EQ(options.slots, 2u);
  EXPECT_EQ(options.seed, 42u);
}

TEST(Flags, UnderscoresAndAliasesAreTaken) {
  const RunOptions options =
      ParseRun({"--model=m", "--data=d", "--output_dir", "o", "--max_steps=4", "--sequence_length",
                "64", "--learning_rate=0.1"})
          .value();
  EXPECT_EQ(options.output_path, "o");
  EXPECT_EQ(options.steps, 4u);
  EXPECT_EQ(options.sequence_length, 64u);
  EXPECT_EQ(options.learning_rate, 0.1);
}

TEST(Flags, PlanNeedsNoOutput) {
  EXPECT_TRUE(ParseRun({"--model", "m", "--data", "d"}, OutputNeed::kNone).ok());
}

TEST(Flags, AMistakeIsOneSentenceThatNamesIt) {
  struct Case {
    Words words;
    Words expected;
  };
  const Case cases[] = {
      {{}, {"--model DIR", "--data FILE", "--output DIR"}},
      {{"--model", "m"}, {"--data FILE"}},
      {With({"--stesp", "3"}), {"--stesp", "--steps"}},
      {With({"--sequence_lenght=3"}), {"--sequence_lenght", "--sequence-length"}},
      {With({"--checkpoint-every", "3"}), {"--checkpoint-every", "nearest"}},
      {With({"-x"}), {"-x"}},
      {With({"stray"}), {"'stray'"}},
      {With({"--steps"}), {"--steps needs a value"}},
      {With({"--steps", "--seed", "3"}), {"--steps needs a value"}},
      {With({"--steps="}), {"--steps needs a value"}},
      {With({"--steps", "3", "--max-steps", "4"}), {"twice"}},
      {With({"--json=yes"}), {"--json", "no value"}},
      {With({"--steps", "0"}), {"--steps 0", "1 or more"}},
      {With({"--steps", "-3"}), {"--steps -3"}},
      {With({"--steps", "1e3"}), {"--steps 1e3"}},
      {With({"--steps", "99999999999999999999"}), {"--steps 9"}},
      {With({"--steps", "3", "--epochs", "1"}), {"--steps and --epochs"}},
      {With({"--eval-every", "3"}), {"--eval-every", "--eval-data"}},
      {With({"--sequence-length", "4294967296"}), {"--sequence-length", "4294967295"}},
      {With({"--learning-rate", "nan"}), {"--learning-rate nan"}},
      {With({"--learning-rate", "-1"}), {"--learning-rate -1"}},
      {With({"--learning-rate", "fast"}), {"--learning-rate fast"}},
      {With({"--device", "tpu"}), {"--device tpu", "cuda or cpu"}},
      {With({"--ram", "lots"}), {"--ram", "lots"}},
      {With({"--ram", "0"}), {"--ram 0"}},
      {With({"--ram", "0%"}), {"--ram 0%"}},
      {With({"--ram", "101%"}), {"--ram 101%"}},
      {With({"--ram", "%"}), {"--ram %"}},
      {With({"--vram", "-1GiB"}), {"--vram", "-1GiB"}},
      {With({"--nvme", ":8GiB"}), {"--nvme :8GiB", "folder is missing"}},
      {With({"--nvme", "a:8Qs"}), {"--nvme", "8Qs"}},
      {With({"--slots", "3"}), {"--slots 3", "1 to 2"}},
      {With({"--wave", "0"}), {"--wave 0"}},
      {With({"--threads", "0"}), {"--threads 0"}},
      {With({"--seed", "x"}), {"--seed x"}},
  };
  for (const Case& each : cases) {
    const Result<RunOptions> result = ParseRun(each.words);
    ASSERT_FALSE(result.ok()) << each.words.back();
    EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
    for (const std::string& part : each.expected) {
      EXPECT_NE(result.status().message().find(part), std::string::npos)
          << part << " in: " << result.status().message();
    }
    EXPECT_EQ(result.status().message().find('\n'), std::string::npos);
  }
}

TEST(Flags, AskingForHelpSetsNothingAndIsNoMistake) {
  RunFlags flags;
  FlagSet set("marea train", "");
  AddRunFlags(set, flags);
  const Result<ParseOutcome> outcome = set.Parse({"--help", "--nonsense"});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.value(), ParseOutcome::kHelp);
}

TEST(FlagValues, NvmePathsWithColons) {
  EXPECT_EQ(ParseNvmePath("--nvme", "/a:b").value().path, "/a:b");
  EXPECT_EQ(ParseNvmePath("--nvme", "/a:b:2G").value().path, "/a:b");
  EXPECT_EQ(ParseNvmePath("--nvme", "/a:b:50%").value().limit.fraction, 0.5);
  EXPECT_EQ(ParseNvmePath("--nvme", "/a:2/").value().path, "/a:2/");
}

TEST(FlagValues, SizesOfBothKinds) {
  EXPECT_EQ(ParseSizeLimit("--ram", "8G").value().bytes, uint64_t{8} << 30);
  EXPECT_EQ(ParseSizeLimit("--ram", "500MB").value().bytes, 500'000'000u);
  EXPECT_EQ(ParseSizeLimit("--ram", "12.5%").value().fraction, 0.125);
  EXPECT_FALSE(ParseSizeLimit("--ram", "12.5%").value().bytes.has_value());
}

TEST(Messages, ASentenceStaysOnItsLine) {
  EXPECT_EQ(OneLine("a\nb\r\tc"), "a b  c");
  EXPECT_EQ(OneLine("a\x1b[31m"), "a\\x1b[31m");
  EXPECT_EQ(OneLine("größe"), "größe");
}

TEST(Progress, AStepLineShowsLossSpeedTiersAndTimeLeft) {
  StepMetrics metrics;
  metrics.step = 3;
  metrics.loss = 5.25;
  metrics.tokens = 1000;
  metrics.step_seconds = 2;
  metrics.vram_peak_bytes = 1 << 20;
  metrics.ram_peak_bytes = 2 << 20;
  metrics.lanes[static_cast<int>(Lane::kNvmeRead)] = {3'000'000'000, 4, 1.0};
  const ProgressFrame frame{
      .steps = 40, .budget_bytes = {4 << 20, 8 << 20, 16 << 20}, .nvme_used_bytes = 12 << 20};
  const std::string line = StepLine(metrics, frame, 75, LineDetail::kFull);
  for (const char* part :
       {"step 3/40", "loss 5.2500", "500 tokens/s", "1m 15s left", "vram 1.00 MiB/4.00 MiB",
        "ram 2.00 MiB/8.00 MiB", "nvme 12.0 MiB/16.0 MiB", "read 1.50 GB/s (3.00 GB/s busy)"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in: " << line;
  }
  EXPECT_EQ(line.find("write"), std::string::npos);
  EXPECT_EQ(StepLine(metrics, frame, 75, LineDetail::kNoBusy).find("busy"), std::string::npos);
  EXPECT_EQ(StepLine(metrics, frame, 75, LineDetail::kNoLimits).find("16.0"), std::string::npos);
  EXPECT_EQ(StepLine(metrics, frame, 75, LineDetail::kTerse),
            "step 3/40 loss 5.2500 500 tok/s 1m 15s left vram 1.00 MiB ram 2.00 MiB nvme 12.0 MiB "
            "r 1.50 GB/s");
}

TEST(Progress, Durations) {
  EXPECT_EQ(DurationText(0.2), "0 s");
  EXPECT_EQ(DurationText(59.4), "59 s");
  EXPECT_EQ(DurationText(200), "3m 20s");
  EXPECT_EQ(DurationText(3725), "1h 02m");
  EXPECT_EQ(DurationText(-5), "0 s");
}

TEST(Arguments, TheNearestNameDiffersLeast) {
  EXPECT_EQ(NearestName("trian", {"train", "plan", "inspect", "report"}), "train");
  EXPECT_EQ(NearestName("plant", {"train", "plan", "inspect", "report"}), "plan");
}

}  // namespace
}  // namespace marea
