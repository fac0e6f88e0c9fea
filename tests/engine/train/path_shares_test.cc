// Several NVMe paths: measured and shared at the start, with the same results as one.
#include "engine/train/path_shares.h"

#include "io/units.h"
#include "tests/engine/train/tiny_run.h"

namespace marea {
namespace {

StoreLayout LayoutOf(std::initializer_list<uint64_t> bytes) {
  StoreLayout layout;
  for (const uint64_t data : bytes) {
    layout.paths.emplace_back().file_bytes = kStoreDataOffset + data;
  }
  return layout;
}

TEST(PathShares, TheNoticeHasSpeedsAndShares) {
  const StorePath paths[] = {{"/a", kGiB, 3.0}, {"/b", kGiB, 1.0}};
  const DriveSpeed speeds[] = {{3.1e9, 2e9}, {1.2e9, 0.6e9}};
  EXPECT_EQ(SharesText(paths, speeds, LayoutOf({750'000, 250'000})),
            "NVMe paths: /a reads 3.10 GB/s and writes 2.00 GB/s, /b reads 1.20 GB/s and writes "
            "600 MB/s: chunks are shared 75:25");
}

TEST(PathShares, APathThatIsTooSmallForItsShareIsNamed) {
  const StorePath paths[] = {{"/a", 100'000, 3.0}, {"/b", kGiB, 1.0}};
  const DriveSpeed speeds[] = {{3e9, 3e9}, {1e9, 1e9}};
  const std::string text = SharesText(paths, speeds, LayoutOf({100'000, 900'000}));
  EXPECT_NE(text.find("10:90, not by speed alone, as /a"), std::string::npos) << text;
}

TEST(PathShares, AFewLargeChunksAreNoWantOfRoom) {
  // A third of the chunks is as near to 39% as three chunks come.
  ChunkTable table;
  for (uint32_t i = 0; i < 3; ++i) {
    table.entries.push_back({.id = {.group = i, .bytes = kMiB}, .updated = true});
  }
  const StorePath paths[] = {{"/a", kGiB, 0.39}, {"/b", kGiB, 0.61}};
  const DriveSpeed speeds[] = {{0.78e9, 0.78e9}, {1.22e9, 1.22e9}};
  const std::string text = SharesText(paths, speeds, LayOutStore(table, paths, 1).value());
  EXPECT_NE(text.find("shared 33:67"), std::string::npos) << text;
  EXPECT_EQ(text.find("room"), std::string::npos) << text;
}

TEST(PathShares, TwoPathsGiveTheBitsOfOneAndTellTheirShares) {
  TinyFolder second;
  TinyOptions options{.respec = OnNvme};
  const Result<TinyResult> one = RunTiny(options);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_TRUE(one.value().notices.empty());
  options.reoption = [&](RunOptions& run) { run.nvme.push_back({second / ".", {}}); };
  const Result<TinyResult> two = RunTiny(options);
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_EQ(two.value().losses, one.value().losses);
  EXPECT_TRUE(two.value().weights == one.value().weights);
  ASSERT_EQ(two.value().notices.size(), 1u);
  EXPECT_NE(two.value().notices[0].find(second / "."), std::string::npos);
  EXPECT_NE(two.value().notices[0].find("chunks are shared"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(second / "."));
}

TEST(PathShares, NothingIsMeasuredWhereNoChunkIsOnNvme) {
  TinyFolder second;
  const auto in_ram = [](PlanSpec& spec) {
    Everywhere(spec, Tier::kRam);
    spec.placement.partial = spec.placement.activation = Tier::kRam;
    SetRings(spec, 2);
  };
  TinyOptions options{.respec = in_ram};
  options.reoption = [&](RunOptions& run) { run.nvme.push_back({second / ".", {}}); };
  const Result<TinyResult> result = RunTiny(options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(result.value().notices.empty());
}

}  // namespace
}  // namespace marea
