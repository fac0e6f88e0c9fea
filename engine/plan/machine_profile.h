// A machine profile: what a machine's memory, links, processors and drives were measured to give,
// as a file. `marea bench --all` writes it; whoever predicts a step's time divides the step's bytes
// and operations by its figures, on this machine or, without the hardware, on another one.
//
// A figure that could not be measured is absent and carries the reason: nothing is guessed.
// docs/benchmark.md explains every key. Plain values; pure functions but for ReadMachineProfile.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.h"

namespace marea {

inline constexpr const char* kMachineProfileFormat = "marea-machine";
inline constexpr uint32_t kMachineProfileVersion = 1;

enum class MachineFigure : uint8_t {
  kRamCopy,    // bytes read and bytes written together, all threads
  kAdamW,      // parameters whose split master and moments are updated, all threads
  kCpuFp32,    // floating-point operations of a matrix product, all threads
  kCpuBf16,    // the same of bf16 matrices, where torch multiplies them
  kH2d,        // bytes from pinned RAM to VRAM, that direction alone
  kD2h,        // bytes from VRAM to pinned RAM, that direction alone
  kBothH2d,    // the two directions at once
  kBothD2h,    //
  kGpuBf16,    // floating-point operations of a bf16 matrix product on one GPU
  kAllGather,  // bytes that arrive at each rank
};
inline constexpr int kMachineFigureCount = 10;

// Its key, which ends in its unit: "ram_copy_bytes_per_second".
const char* MachineFigureKey(MachineFigure figure);

// A second's worth, or why there is none.
struct Measured {
  std::optional<double> per_second;  // finite, above 0
  std::string reason;                // one sentence; empty exactly if there is a figure

  static Measured Of(double per_second) { return {per_second, {}}; }
  static Measured Not(std::string reason) { return {std::nullopt, std::move(reason)}; }
  bool operator==(const Measured&) const = default;
};

// A drive's rates, in bytes a second, direct I/O: reading alone, writing alone, both in turn.
struct DriveRates {
  double read = 0;
  double write = 0;
  double mixed_read = 0;
  double mixed_write = 0;
  bool operator==(const DriveRates&) const = default;
};

struct ProfiledDrive {
  std::string path;   // as the user named it
  std::string model;  // empty where it is not known
  DriveRates rates;
  bool operator==(const ProfiledDrive&) const = default;
};

struct MachineProfile {
  std::string cpu;                // "AMD EPYC 9654 96-Core Processor"
  uint32_t hardware_threads = 0;  // that the process may use
  uint32_t threads = 0;           // that the figures of the CPU were measured with
  std::string kernel;             // "6.1.0-13-amd64"
  std::vector<std::string> gpus;  // by index, "NVIDIA H200"; figures of a GPU are of the first

  std::array<Measured, kMachineFigureCount> figures;
  std::vector<ProfiledDrive> drives;
  std::string no_drives_reason;               // not empty exactly if there are none
  std::optional<DriveRates> drives_together;  // several drives side by side: their sum

  const Measured& figure(MachineFigure which) const { return figures[static_cast<int>(which)]; }
  Measured& figure(MachineFigure which) { return figures[static_cast<int>(which)]; }
  bool operator==(const MachineProfile&) const = default;
};

// Ends in a newline. Figures come back bit for bit.
std::string ToJson(const MachineProfile& profile);

// InvalidArgument for text that is no such file, or of another version, or that lacks a key, has
// one that is unknown, or a figure that is neither above 0 nor null with its reason; the sentence
// names `origin` and the key.
Result<MachineProfile> ParseMachineProfile(const std::string& text, const std::string& origin);

// The same of a file. Blocks.
Result<MachineProfile> ReadMachineProfile(const std::string& path);

}  // namespace marea
