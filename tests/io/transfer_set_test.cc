#include "io/transfer_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace marea {
namespace {

using Piece = TransferSet::Piece;

// Memory that is never touched: the set only counts.
std::byte* At(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}

BlockDeviceOptions Options(uint32_t depth, uint64_t request_bytes, size_t capacity) {
  return {.queue_depth = depth, .request_bytes = request_bytes, .capacity = capacity, .mode = {}};
}

IoRequest Read(uint64_t offset, uint64_t bytes, uint64_t tag, uint64_t address = kGiB) {
  return {IoDirection::kRead, 0, offset, At(address), bytes, tag};
}

std::vector<IoCompletion> TakeAll(TransferSet& set) {
  std::vector<IoCompletion> all(set.capacity(), IoCompletion{0, Status::Ok()});
  all.resize(set.TakeFinished(all), IoCompletion{0, Status::Ok()});
  return all;
}

// Answers every piece whole until none is left; returns them.
std::vector<Piece> AnswerAll(TransferSet& set) {
  std::vector<Piece> pieces;
  Piece piece;
  while (set.Next(&piece)) {
    pieces.push_back(piece);
    set.Finish(piece.token, static_cast<int64_t>(piece.bytes));
  }
  return pieces;
}

TEST(TransferSetTest, SplitsARequestAndCompletesItOnce) {
  TransferSet set(Options(4, 64 * kKiB, 8), {"/f"});
  set.Add(Read(kMiB, 200 * kKiB, 7));
  const std::vector<Piece> pieces = AnswerAll(set);
  ASSERT_EQ(pieces.size(), 4u);
  uint64_t next = kMiB;
  for (const Piece& piece : pieces) {
    EXPECT_EQ(piece.offset, next);
    EXPECT_EQ(piece.data, At(kGiB + next - kMiB));
    next += piece.bytes;
  }
  EXPECT_EQ(next, kMiB + 200 * kKiB);
  const auto done = TakeAll(set);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].tag, 7u);
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_EQ(set.in_flight(), 0u);
}

TEST(TransferSetTest, NeverExceedsTheQueueDepth) {
  TransferSet set(Options(3, kPageBytes, 8), {"/f"});
  set.Add(Read(0, 8 * kPageBytes, 1));
  Piece pieces[3];
  for (Piece& piece : pieces) ASSERT_TRUE(set.Next(&piece));
  Piece fourth;
  EXPECT_FALSE(set.Next(&fourth));
  EXPECT_EQ(set.pieces_out(), 3u);
  set.Finish(pieces[1].token, kPageBytes);
  EXPECT_TRUE(set.Next(&fourth));
  EXPECT_FALSE(set.Next(&fourth));
}

TEST(TransferSetTest, CountsMoreThanFourGibibytes) {
  // One request of 5 GiB at an offset and an address that are no multiple of the cut.
  constexpr uint64_t kBytes = 5 * kGiB + kPageBytes;
  constexpr uint64_t kAddress = 3 * kGiB + 5 * kPageBytes;
  TransferSet set(Options(32, kGiB, 1), {"/f"});
  set.Add({IoDirection::kWrite, 0, 7 * kGiB + kPageBytes, At(kAddress), kBytes, 1});
  uint64_t next = 7 * kGiB + kPageBytes;
  for (const Piece& piece : AnswerAll(set)) {
    EXPECT_EQ(piece.offset, next);
    const auto begin = reinterpret_cast<uintptr_t>(piece.data);
    EXPECT_EQ(begin / kAddressCutBytes, (begin + piece.bytes - 1) / kAddressCutBytes);
    next += piece.bytes;
  }
  EXPECT_EQ(next, 12 * kGiB + 2 * kPageBytes);
  EXPECT_EQ(set.counters().write_bytes, kBytes);
  EXPECT_TRUE(TakeAll(set).at(0).status.ok());
}

TEST(TransferSetTest, ResumesAShortTransferAtAWholePage) {
  TransferSet set(Options(1, kMiB, 1), {"/f"});
  set.Add(Read(0, 4 * kPageBytes, 1));
  Piece piece;
  ASSERT_TRUE(set.Next(&piece));
  set.Finish(piece.token, 2 * kPageBytes + 100);
  ASSERT_TRUE(set.Next(&piece));
  EXPECT_EQ(piece.offset, 2 * kPageBytes);
  EXPECT_EQ(piece.bytes, 2 * kPageBytes);
  EXPECT_EQ(piece.data, At(kGiB + 2 * kPageBytes));
  set.Finish(piece.token, 2 * kPageBytes);
  EXPECT_TRUE(TakeAll(set).at(0).status.ok());
  EXPECT_EQ(set.counters().short_transfers, 1u);
}

TEST(TransferSetTest, EndOfFileIsAnErrorAndNoLoop) {
  TransferSet set(Options(1, kMiB, 1), {"/the/file"});
  set.Add(Read(8192, 4 * kPageBytes, 1));
  Piece piece;
  ASSERT_TRUE(set.Next(&piece));
  set.Finish(piece.token, kPageBytes);
  ASSERT_TRUE(set.Next(&piece));
  set.Finish(piece.token, 0);
  EXPECT_FALSE(set.Next(&piece));
  const Status status = TakeAll(set).at(0).status;
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_NE(status.message().find("/the/file: read of 12288 bytes at offset 12288"),
            std::string::npos)
      << status.message();
}

TEST(TransferSetTest, DripsOfLessThanAPageEndInAnError) {
  TransferSet set(Options(1, kMiB, 1), {"/f"});
  set.Add(Read(0, kPageBytes, 1));
  Piece piece;
  uint32_t tries = 0;
  while (set.Next(&piece)) {
    set.Finish(piece.token, 512);
    ASSERT_LE(++tries, kTransientRetriesMax + 1);
  }
  EXPECT_FALSE(TakeAll(set).at(0).status.ok());
}

TEST(TransferSetTest, RetriesWhatIsTransient) {
  TransferSet set(Options(1, kMiB, 1), {"/f"});
  set.Add(Read(0, kPageBytes, 1));
  Piece piece;
  for (const int error : {EINTR, EAGAIN, EIO, EAGAIN, EINTR}) {
    ASSERT_TRUE(set.Next(&piece));
    set.Finish(piece.token, -error);
  }
  ASSERT_TRUE(set.Next(&piece));
  set.Finish(piece.token, kPageBytes);
  EXPECT_TRUE(TakeAll(set).at(0).status.ok());
  EXPECT_EQ(set.counters().retries, 5u);
}

TEST(TransferSetTest, EndlessEagainEndsInAnError) {
  TransferSet set(Options(1, kMiB, 1), {"/f"});
  set.Add(Read(0, kPageBytes, 1));
  Piece piece;
  uint32_t tries = 0;
  while (set.Next(&piece)) {
    set.Finish(piece.token, -EAGAIN);
    ASSERT_LE(++tries, kTransientRetriesMax + 1);
  }
  EXPECT_EQ(tries, kTransientRetriesMax + 1);
  EXPECT_EQ(TakeAll(set).at(0).status.error_number(), EAGAIN);
}

TEST(TransferSetTest, ReportsTheSecondEioAndEveryOtherErrno) {
  for (const int error : {EIO, ENOSPC, EFBIG, EINVAL, ENODEV, 4095}) {
    TransferSet set(Options(1, kMiB, 1), {"/the/file"});
    set.Add({IoDirection::kWrite, 0, 12288, At(kGiB), 8192, 1});
    Piece piece;
    int tries = 0;
    while (set.Next(&piece)) {
      ++tries;
      set.Finish(piece.token, -error);
    }
    EXPECT_EQ(tries, error == EIO ? 2 : 1);
    const Status status = TakeAll(set).at(0).status;
    EXPECT_EQ(status.error_number(), error);
    EXPECT_NE(status.message().find("/the/file: write of 8192 bytes at offset 12288"),
              std::string::npos)
        << status.message();
  }
}

TEST(TransferSetTest, AFailedRequestStartsNoFurtherPieces) {
  TransferSet set(Options(2, kPageBytes, 2), {"/f"});
  set.Add(Read(0, 100 * kPageBytes, 1));
  set.Add(Read(kGiB, kPageBytes, 2));
  Piece first, second, other;
  ASSERT_TRUE(set.Next(&first));
  ASSERT_TRUE(set.Next(&second));
  set.Finish(first.token, -ENOSPC);
  EXPECT_FALSE(set.has_finished()) << "a piece is still out";
  ASSERT_TRUE(set.Next(&other));
  EXPECT_EQ(other.offset, kGiB) << "the next request goes on";
  set.Finish(second.token, -EAGAIN);
  set.Finish(other.token, kPageBytes);
  EXPECT_FALSE(set.Next(&other)) << "a retry of a failed request";
  const auto done = TakeAll(set);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(std::count_if(done.begin(), done.end(), [](auto& c) { return c.status.ok(); }), 1);
  EXPECT_EQ(set.counters().failures, 1u);
}

TEST(TransferSetTest, FailAllFinishesEverythingOnce) {
  TransferSet set(Options(2, kPageBytes, 8), {"/f"});
  for (uint64_t tag = 0; tag < 8; ++tag) set.Add(Read(tag * kGiB, 3 * kPageBytes, tag));
  Piece piece;
  ASSERT_TRUE(set.Next(&piece));
  set.Finish(piece.token, -EAGAIN);  // waits to be retried
  ASSERT_TRUE(set.Next(&piece));     // out
  set.FailAll(Status::Io("the ring is gone", EBADF));
  EXPECT_FALSE(set.Next(&piece));
  EXPECT_EQ(set.pieces_out(), 0u);
  std::vector<bool> seen(8, false);
  for (const IoCompletion& completion : TakeAll(set)) {
    EXPECT_FALSE(seen[completion.tag]);
    seen[completion.tag] = true;
    EXPECT_EQ(completion.status.error_number(), EBADF);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 8);
  set.Add(Read(0, kPageBytes, 9));  // nothing leaked
  EXPECT_EQ(AnswerAll(set).size(), 1u);
}

TEST(TransferSetDeathTest, CatchesALateCompletion) {
  TransferSet set(Options(1, kMiB, 1), {"/f"});
  set.Add(Read(0, kPageBytes, 1));
  Piece piece;
  ASSERT_TRUE(set.Next(&piece));
  set.Finish(piece.token, kPageBytes);
  EXPECT_DEATH(set.Finish(piece.token, kPageBytes), "comes late");
}

TEST(TransferSetDeathTest, CatchesRequestsThatBreakTheRules) {
  TransferSet set(Options(1, kMiB, 1), {"/f"});
  EXPECT_DEATH(set.Add(Read(512, kPageBytes, 1)), "offset");
  EXPECT_DEATH(set.Add(Read(0, 512, 1)), "whole pages");
  EXPECT_DEATH(set.Add(Read(0, 0, 1)), "whole pages");
  EXPECT_DEATH(set.Add(Read(0, kPageBytes, 1, kGiB + 512)), "memory");
  EXPECT_DEATH(set.Add({IoDirection::kRead, 1, 0, At(kGiB), kPageBytes, 1}), "file");
  set.Add(Read(0, kPageBytes, 1));
  EXPECT_DEATH(set.Add(Read(0, kPageBytes, 1)), "capacity");
}

// Random requests, answers in random order with random faults: each completes once, and pieces that
// were answered whole cover each successful request exactly.
TEST(TransferSetTest, RandomAnswers) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    TransferSet set(Options(1 + random() % 8, kPageBytes * (1 + random() % 8), 16), {"/f"});
    std::map<uint64_t, uint64_t> left_bytes;  // by tag
    std::vector<Piece> out;
    uint64_t next_tag = 0;
    size_t finished = 0;
    constexpr uint64_t kRequests = 60;
    while (finished < kRequests) {
      while (next_tag < kRequests && set.in_flight() < set.capacity() && random() % 2 == 0) {
        const uint64_t bytes = kPageBytes * (1 + random() % 40);
        left_bytes[next_tag] = bytes;
        set.Add(Read(next_tag * kGiB, bytes, next_tag));
        ++next_tag;
      }
      Piece piece;
      while (set.Next(&piece)) out.push_back(piece);
      if (!out.empty()) {
        std::swap(out[random() % out.size()], out.back());
        piece = out.back();
        out.pop_back();
        const uint64_t tag = piece.offset / kGiB;
        const uint64_t kind = random() % 10;
        if (kind == 0) {
          set.Finish(piece.token, random() % 20 == 0 ? -ENOSPC : -EAGAIN);
        } else if (kind == 1) {
          const uint64_t pages = random() % (piece.bytes / kPageBytes);
          left_bytes[tag] -= pages * kPageBytes;
          set.Finish(piece.token, static_cast<int64_t>(pages * kPageBytes + 1 + random() % 4095));
        } else {
          left_bytes[tag] -= piece.bytes;
          set.Finish(piece.token, static_cast<int64_t>(piece.bytes));
        }
      }
      for (const IoCompletion& completion : TakeAll(set)) {
        ++finished;
        ASSERT_EQ(left_bytes.count(completion.tag), 1u) << "seed " << seed;
        ASSERT_EQ(left_bytes[completion.tag] == 0, completion.status.ok()) << "seed " << seed;
        left_bytes.erase(completion.tag);
      }
    }
    ASSERT_EQ(set.in_flight(), 0u) << "seed " << seed;
    ASSERT_EQ(set.pieces_out(), 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace marea
