// JSON that metrics and summary share. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "swap/executor.h"
#include "swap/swap_stats.h"

namespace marea {

// `amount / seconds`, 0 where no time passed.
double Rate(double amount, double seconds);

// Every lane's stall seconds by the lane's name.
nlohmann::ordered_json StallJson(const StallSeconds& stall_seconds);

// Every lane's bytes, ops, busy seconds and bytes per busy second by the lane's name.
nlohmann::ordered_json LanesJson(const SwapSnapshot& lanes);

enum class JsonStyle : uint8_t { kOneLine, kPretty };

// Doubles come back bit for bit from the shortest text that does so; what JSON cannot say (NaN,
// infinity) is null. Bytes that are no UTF-8 (a path may hold any) are replaced, never thrown at.
std::string DumpJson(const nlohmann::ordered_json& value, JsonStyle style);

}  // namespace marea
