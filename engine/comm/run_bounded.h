// Runs a call that may hang for good, and stops waiting for it.
//
// For libraries whose connections have no timeout. A call that does not come back keeps its thread
// (and what it captured, so capture by value) until the process ends, which it then should: the
// caller returns an error that ends it.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace marea {

// What `call` returned; nothing if that is not known when `deadline` has passed or `give_up` is
// true (asked every 50 ms).
template <typename T>
std::optional<T> RunBounded(std::chrono::steady_clock::time_point deadline, std::function<T()> call,
                            const std::function<bool()>& give_up = nullptr) {
  std::packaged_task<T()> task(std::move(call));
  std::future<T> result = task.get_future();
  std::thread thread(std::move(task));
  constexpr std::chrono::milliseconds kLookEvery(50);
  while (result.wait_for(kLookEvery) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() < deadline && !(give_up && give_up())) continue;
    thread.detach();
    return std::nullopt;
  }
  thread.join();
  return result.get();
}

}  // namespace marea
