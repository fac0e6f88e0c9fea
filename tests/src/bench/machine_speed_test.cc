// How the machine's figures are taken: runs and their median, copies that are checked, stopped and
// refused, drives that become part of a profile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "src/bench/copy_speed.h"
#include "src/bench/machine_report.h"
#include "src/bench/memory_speed.h"
#include "swap/cpu_device.h"

namespace marea {
namespace {

SpeedOptions Quick(const std::atomic<bool>* stop = nullptr) {
  return {.seconds = 0.02, .threads = 1, .stop = stop};
}

TEST(MedianRunSeconds, DropsTheFirstRunAndOneOutlier) {
  int runs = 0;
  const Result<double> median = MedianRunSeconds({.seconds = 0.001}, [&] {
    const bool slow = runs == 0 || runs == 2;
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(slow ? 200 : 5));
    return Status::Ok();
  });
  EXPECT_EQ(runs, 4);  // one dropped, three however short the time
  EXPECT_GE(median.value(), 0.005);
  EXPECT_LT(median.value(), 0.2);
}

TEST(MedianRunSeconds, EndsWithAFailureOrAStop) {
  int runs = 0;
  const auto fails = [&] { return ++runs == 2 ? Status::Failed("no more") : Status::Ok(); };
  EXPECT_EQ(MedianRunSeconds(Quick(), fails).status().message(), "no more");
  EXPECT_EQ(runs, 2);
  const std::atomic<bool> stop = true;
  EXPECT_EQ(MedianRunSeconds(Quick(&stop), [] { return Status::Ok(); }).status().code(),
            ErrorCode::kCancelled);
}

// A CPU device whose `bad_copy`-th copy goes wrong.
class BadDevice final : public Device {
 public:
  enum class Fault : uint8_t { kNone, kFlipsAByte, kFails };

  BadDevice(Fault fault, int bad_copy)
      : fault_(fault),
        bad_copy_(bad_copy),
        device_(CpuDevice::Create(kCopySpeedVramBytes).value()) {}

  void Start(std::span<std::byte> destination, std::span<const std::byte> source,
             CopyDirection direction, const OpCall* call, Completion done) override {
    const bool bad = copies_++ == bad_copy_;
    const Fault fault = bad ? fault_ : Fault::kNone;
    device_->Start(destination, source, direction, call,
                   [destination, fault, done = std::move(done)](Status status) {
                     if (fault == Fault::kFlipsAByte) destination[12345] ^= std::byte{1};
                     done(fault == Fault::kFails ? Status::Failed("a copy failed") : status);
                   });
  }
  void Run(const OpCall& call, std::function<Status()> work, Completion done) override {
    device_->Run(call, std::move(work), std::move(done));
  }
  std::span<std::byte> vram() const override { return device_->vram(); }
  LaunchDepth launch_depth() const override { return device_->launch_depth(); }
  MemoryRegistrar* registrar() override { return device_->registrar(); }
  const std::vector<std::string>& warnings() const override { return device_->warnings(); }
  uint64_t peak_bytes() override { return device_->peak_bytes(); }
  Status Shutdown() override { return device_->Shutdown(); }

  int copies() const { return copies_; }

 private:
  const Fault fault_;
  const int bad_copy_;
  int copies_ = 0;
  std::unique_ptr<Device> device_;
};

TEST(MeasureCopies, GivesARateForEachDirection) {
  BadDevice device(BadDevice::Fault::kNone, -1);
  const Result<CopyRates> rates = MeasureCopies(device, Quick());
  ASSERT_TRUE(rates.ok()) << rates.status().message();
  for (const double rate :
       {rates.value().h2d, rates.value().d2h, rates.value().both_h2d, rates.value().both_d2h}) {
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e13);
  }
  // There and back, then at least eight in each of four windows.
  EXPECT_GE(device.copies(), 2 * 4 + 4 * 8);
}

TEST(MeasureCopies, WrongBytesHaveNoRate) {
  BadDevice device(BadDevice::Fault::kFlipsAByte, 1);
  EXPECT_EQ(MeasureCopies(device, Quick()).status().code(), ErrorCode::kCorrupt);
}

TEST(MeasureCopies, AFailedCopyEndsItWithNoneInFlight) {
  for (const int bad_copy : {0, 7, 15, 30}) {
    BadDevice device(BadDevice::Fault::kFails, bad_copy);
    EXPECT_EQ(MeasureCopies(device, Quick()).status().message(), "a copy failed") << bad_copy;
  }
}

TEST(MeasureCopies, CanBeStopped) {
  const std::atomic<bool> stop = true;
  BadDevice device(BadDevice::Fault::kNone, -1);
  EXPECT_EQ(MeasureCopies(device, Quick(&stop)).status().code(), ErrorCode::kCancelled);
}

BenchResult ResultOf(WorkloadKind kind, std::vector<std::string> paths, uint64_t read,
                     uint64_t write) {
  BenchResult result{};
  result.kind = kind;
  result.paths = std::move(paths);
  result.measured.seconds = 2;
  result.measured.read_bytes = read;
  result.measured.write_bytes = write;
  return result;
}

TEST(AddDrives, TakesEachPathAloneAndAllTogether) {
  std::vector<PathFacts> paths(2);
  paths[0].folder = "a";
  paths[0].details.drive.model = "A drive";
  paths[1].folder = "b";
  std::vector<BenchResult> results;
  uint64_t bytes = 0;
  for (const std::vector<std::string>& of :
       {std::vector<std::string>{"a"}, std::vector<std::string>{"b"},
        std::vector<std::string>{"a", "b"}}) {
    results.push_back(ResultOf(WorkloadKind::kRead, of, bytes + 2, 0));
    results.push_back(ResultOf(WorkloadKind::kWrite, of, 0, bytes + 4));
    results.push_back(ResultOf(WorkloadKind::kMixed, of, bytes + 6, bytes + 8));
    bytes += 100;
  }
  MachineProfile profile;
  profile.no_drives_reason = "none yet";
  ASSERT_TRUE(AddDrives(paths, results, &profile).ok());
  const std::vector<ProfiledDrive> expected = {{"a", "A drive", {1, 2, 3, 4}},
                                               {"b", "", {51, 52, 53, 54}}};
  EXPECT_TRUE(profile.drives == expected);
  EXPECT_TRUE(profile.drives_together == (DriveRates{101, 102, 103, 104}));
  EXPECT_EQ(profile.no_drives_reason, "");

  results[4].measured.write_bytes = 0;
  const Status silent = AddDrives(paths, results, &profile);
  EXPECT_EQ(silent.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(silent.message().find("b: "), std::string::npos) << silent.message();
  EXPECT_NE(silent.message().find("--seconds"), std::string::npos) << silent.message();
}

TEST(MachineText, HasEachFigureAndEachReasonOnce) {
  MachineProfile profile;
  profile.cpu = "A processor";
  profile.threads = 2;
  profile.hardware_threads = 4;
  profile.no_drives_reason = "no --nvme PATH was given";
  for (Measured& figure : profile.figures) figure = Measured::Not("no such part");
  profile.figure(MachineFigure::kRamCopy) = Measured::Of(12.34e9);
  profile.figure(MachineFigure::kGpuBf16) = Measured::Of(654.3e12);
  const std::string text = MachineText(profile);
  for (const char* part : {"A processor, 2 of 4", "12.34 GB/s", "654.30 TFLOP/s", "no such part",
                           "no --nvme PATH was given"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
  }
  EXPECT_EQ(text.find("no such part"), text.rfind("no such part")) << text;
}

}  // namespace
}  // namespace marea
