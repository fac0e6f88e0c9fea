// Residency: the paths that plans take through it, and a random walk against a model of its own.
#include "swap/residency.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace marea {
namespace {

using R = Residency;

ResidencyTable::Row MakeRow(ShardKind kind = ShardKind::kWeight, bool has_home = true) {
  ResidencyTable::Row row;
  row.id = {.kind = kind, .group = 3, .chunk = 2, .first_byte = 4096, .bytes = 4096};
  row.has_home = has_home;
  return row;
}

class ResidencyTest : public ::testing::Test {
 protected:
  explicit ResidencyTest(ShardKind kind = ShardKind::kWeight) : table_({MakeRow(kind)}) {}
  R state() const { return table_.row(0).state; }
  void Store() {  // the home gets its first bytes
    ASSERT_TRUE(table_.BeginProduceHome(0).ok());
    table_.EndChangeHome(0, true);
    ASSERT_EQ(state(), R::kHome);
  }
  void Fetch(Lease& copy) {
    ASSERT_TRUE(table_.BeginFetch(0, copy).ok());
    table_.EndFetch(0, copy, true);
  }
  void Change(Lease& copy) {
    ASSERT_TRUE(table_.BeginChangeCopy(0).ok());
    table_.EndChangeCopy(0, copy, true);
  }
  // Refused, with a sentence that names the shard, both states and the event.
  void ExpectRefused(const Status& status, const char* from, const char* to, const char* event) {
    ASSERT_FALSE(status.ok());
    for (const char* word : {"weight of group 3, chunk 2", from, to, event}) {
      EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    }
  }

  ResidencyTable table_;
};

TEST_F(ResidencyTest, AnUpdateThroughNvme) {
  Store();
  {
    Lease staging, slot;
    ASSERT_TRUE(table_.BeginFetch(0, staging).ok());
    EXPECT_EQ(state(), R::kFetching);
    table_.EndFetch(0, staging, true);
    EXPECT_EQ(state(), R::kShared);
    ASSERT_TRUE(table_.BeginChangeCopy(0).ok());
    EXPECT_EQ(state(), R::kCopyChanging);
    table_.EndChangeCopy(0, staging, true);
    EXPECT_EQ(state(), R::kModified);
    // The write-back and the copy to VRAM read the same staging value at once.
    ASSERT_TRUE(table_.BeginWriteBack(0).ok());
    EXPECT_EQ(state(), R::kWriting);
    ASSERT_TRUE(table_.BeginSpread(0, slot).ok());
    EXPECT_EQ(state(), R::kWriting);
    table_.EndWriteBack(0, true);
    EXPECT_EQ(state(), R::kFetching);
    table_.EndSpread(0, slot, true);
    EXPECT_EQ(state(), R::kShared);
    EXPECT_TRUE(staging.Release().ok());
    EXPECT_EQ(state(), R::kShared);
    ASSERT_TRUE(table_.BeginUseCopy(0).ok());
    table_.EndUseCopy(0);
    EXPECT_FALSE(table_.CheckIdle().ok());  // the slot is still leased
  }
  EXPECT_EQ(state(), R::kHome);
  EXPECT_TRUE(table_.CheckIdle().ok());
}

TEST_F(ResidencyTest, TwoCopiesAtOnceThenNoChangeUntilOneIsGone) {
  Store();
  Lease forward, backward;
  Fetch(forward);
  ASSERT_TRUE(table_.BeginFetch(0, backward).ok());
  ASSERT_TRUE(table_.BeginUseCopy(0).ok());  // forward runs while the prefetch is under way
  table_.EndUseCopy(0);
  table_.EndFetch(0, backward, true);
  EXPECT_EQ(table_.row(0).copies, 2u);
  ExpectRefused(table_.BeginChangeCopy(0), "shared", "copy_changing", "change_copy");
  ExpectRefused(table_.BeginChangeHome(0), "shared", "home_changing", "change_home");
  EXPECT_TRUE(forward.Release().ok());
  EXPECT_TRUE(forward.Release().ok());  // harmless to repeat
  Change(backward);
  ASSERT_TRUE(table_.BeginWriteBack(0).ok());
  table_.EndWriteBack(0, true);
}

TEST_F(ResidencyTest, RefusalsNameShardStatesAndEvent) {
  Lease copy;
  ExpectRefused(table_.BeginFetch(0, copy), "empty", "fetching", "fetch");
  EXPECT_FALSE(copy);
  ExpectRefused(table_.BeginUseHome(0), "empty", "home", "use_home");
  Store();
  ExpectRefused(table_.BeginUseCopy(0), "home", "shared", "use_copy");
  ExpectRefused(table_.BeginWriteBack(0), "home", "writing", "write_back");
  ASSERT_TRUE(table_.BeginUseHome(0).ok());
  ExpectRefused(table_.BeginChangeHome(0), "home", "home_changing", "change_home");
  table_.EndUseHome(0);
  ASSERT_TRUE(table_.BeginFetch(0, copy).ok());
  ExpectRefused(table_.BeginWriteBack(0), "fetching", "writing", "write_back");
  table_.EndFetch(0, copy, true);
  Change(copy);
  ExpectRefused(table_.BeginUseHome(0), "modified", "home", "use_home");
  ExpectRefused(table_.BeginChangeHome(0), "modified", "home_changing", "change_home");
  ExpectRefused(copy.Release(), "modified", "home", "would be lost");
  EXPECT_EQ(state(), R::kEmpty);  // the lease is gone all the same, and so are the bytes
}

TEST_F(ResidencyTest, AFailedFillOrWriteLeavesTheTruth) {
  Store();
  Lease copy;
  ASSERT_TRUE(table_.BeginFetch(0, copy).ok());
  table_.EndFetch(0, copy, false);
  EXPECT_FALSE(copy);
  EXPECT_EQ(state(), R::kHome);
  Fetch(copy);
  Change(copy);
  ASSERT_TRUE(table_.BeginWriteBack(0).ok());
  table_.EndWriteBack(0, false);
  EXPECT_EQ(state(), R::kModified);
  ASSERT_TRUE(table_.BeginChangeCopy(0).ok());
  table_.EndChangeCopy(0, copy, false);
  EXPECT_EQ(state(), R::kEmpty);
  EXPECT_TRUE(table_.CheckIdle().ok());
}

TEST_F(ResidencyTest, ALeaseMovesAndIsReleasedOnce) {
  Store();
  Lease a;
  Fetch(a);
  Lease b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: what a moved lease holds is the point
  EXPECT_EQ(table_.row(0).leases, 1u);
  {
    Lease c;
    c = std::move(b);
  }
  EXPECT_EQ(table_.row(0).leases, 0u);
  EXPECT_TRUE(table_.CheckIdle().ok());
}

class PartialTest : public ResidencyTest {
 protected:
  PartialTest() : ResidencyTest(ShardKind::kPartial) {}
};

TEST_F(PartialTest, MayBeGivenUpOnceUsed) {
  Lease sum;
  ASSERT_TRUE(table_.BeginProduceCopy(0, sum).ok());
  table_.EndChangeCopy(0, sum, true);
  Change(sum);
  EXPECT_TRUE(sum.Release().ok());
  EXPECT_EQ(state(), R::kEmpty);
  EXPECT_TRUE(table_.CheckIdle().ok());
}

TEST_F(PartialTest, UnchangedBytesMayBeWrittenBack) {
  // A wave whose micro-batches are all masked fetches its sum and sends it home as it was.
  Store();
  Lease sum;
  Fetch(sum);
  ASSERT_TRUE(table_.BeginWriteBack(0).ok());
  table_.EndWriteBack(0, true);
  EXPECT_EQ(state(), R::kShared);
}

// A model of a chunk with explicit version numbers: an event is legal exactly when the bytes it
// reads are the newest and the bytes it writes are nobody else's. The table must agree, event by
// event, and its state must say where the newest version is.
class Model {
 public:
  static constexpr int kPlaces = 3;  // copies

  struct Place {
    bool leased = false;
    bool filling = false;
    bool changing = false;
    uint64_t version = 0;
  };

  bool AnyLeasedBut(int place) const {
    for (int p = 0; p < kPlaces; ++p) {
      if (p != place && places[p].leased) return true;
    }
    return false;
  }
  bool Valid(int p) const {
    return places[p].leased && !places[p].filling && !places[p].changing &&
           places[p].version == newest;
  }
  bool Changing() const {
    for (const Place& place : places) {
      if (place.changing) return true;
    }
    return home_changing;
  }
  // A change that has begun makes everything else stale.
  bool HomeValid() const { return !Changing() && writing == -1 && home == newest && home > 0; }

  uint64_t newest = 0;  // 0: never written
  uint64_t home = 0;
  bool home_changing = false;
  int writing = -1;  // place on its way home
  std::array<Place, kPlaces> places;
};

class Walk {
 public:
  explicit Walk(uint64_t seed) : random_(seed), table_({MakeRow()}) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Step();
      CheckState();
    }
    Finish();
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }

  void Step() {
    const int p = Pick(Model::kPlaces);
    Model::Place& place = model_.places[p];
    Lease& lease = leases_[p];
    switch (Pick(8)) {
      case 0:
        return Fetch(p);
      case 1:
        return Spread(p);
      case 2:
        return EndFill(p);
      case 3:
        return Change(p);
      case 4: {
        if (!place.changing) return;
        table_.EndChangeCopy(0, lease, true);
        place.changing = false;
        place.version = ++model_.newest;
        return;
      }
      case 5:
        return WriteBack(p);
      case 6: {
        if (model_.writing == -1) return;
        table_.EndWriteBack(0, true);
        model_.home = model_.places[model_.writing].version;
        model_.writing = -1;
        return;
      }
      default:
        return HomeOrRelease(p);
    }
  }

  void Fetch(int p) {
    if (leases_[p]) return;
    const bool legal = model_.HomeValid();
    EXPECT_EQ(table_.BeginFetch(0, leases_[p]).ok(), legal);
    if (!legal) return;
    model_.places[p] = {.leased = true, .filling = true, .version = model_.newest};
    from_home_[p] = true;
  }

  void Spread(int p) {
    if (leases_[p]) return;
    bool source = false;
    for (int q = 0; q < Model::kPlaces; ++q) source |= model_.Valid(q);
    EXPECT_EQ(table_.BeginSpread(0, leases_[p]).ok(), source);
    if (!source) return;
    model_.places[p] = {.leased = true, .filling = true, .version = model_.newest};
    from_home_[p] = false;
  }

  void EndFill(int p) {
    if (!model_.places[p].filling) return;
    if (from_home_[p]) {
      table_.EndFetch(0, leases_[p], true);
    } else {
      table_.EndSpread(0, leases_[p], true);
    }
    model_.places[p].filling = false;
  }

  void Change(int p) {
    // The caller (the swapper) vouches that place p holds the copy.
    if (!model_.Valid(p) || model_.writing != -1) return;
    const bool legal = !model_.AnyLeasedBut(p);
    EXPECT_EQ(table_.BeginChangeCopy(0).ok(), legal);
    if (legal) model_.places[p].changing = true;
  }

  void WriteBack(int p) {
    if (!model_.Valid(p) || model_.writing != -1) return;
    bool home_read = false;
    for (int q = 0; q < Model::kPlaces; ++q) home_read |= model_.places[q].filling && from_home_[q];
    EXPECT_EQ(table_.BeginWriteBack(0).ok(), !home_read);
    if (!home_read) model_.writing = p;
  }

  void HomeOrRelease(int p) {
    if (model_.home_changing) {
      table_.EndChangeHome(0, true);
      model_.home_changing = false;
      model_.home = ++model_.newest;
      return;
    }
    if (!leases_[p]) {
      // Nothing may be in flight or copied while the home changes in place.
      const bool legal = !model_.AnyLeasedBut(-1) && model_.home == model_.newest;
      EXPECT_EQ(table_.BeginProduceHome(0).ok(), legal);
      if (legal) model_.home_changing = true;
      return;
    }
    const Model::Place& place = model_.places[p];
    if (place.filling || place.changing || model_.writing == p) return;  // its op has not ended
    bool needed = false;  // by a fill that reads it, or because nobody else has the bytes
    for (int q = 0; q < Model::kPlaces; ++q) needed |= model_.places[q].filling && !from_home_[q];
    bool other = model_.HomeValid();
    for (int q = 0; q < Model::kPlaces; ++q) other |= q != p && model_.Valid(q);
    if (needed || !other) return;
    EXPECT_TRUE(leases_[p].Release().ok());
    model_.places[p] = {};
  }

  void CheckState() {
    const R state = table_.row(0).state;
    uint32_t leased = 0;
    for (const Model::Place& place : model_.places) leased += place.leased ? 1 : 0;
    EXPECT_EQ(table_.row(0).leases, leased);
    const bool says_home = state == R::kHome || state == R::kFetching || state == R::kShared;
    EXPECT_EQ(says_home, model_.HomeValid()) << ResidencyName(state);
    EXPECT_EQ(state == R::kEmpty, model_.newest == 0 && !model_.Changing());
    EXPECT_EQ(state == R::kWriting, model_.writing != -1);
    EXPECT_EQ(state == R::kHomeChanging || state == R::kCopyChanging, model_.Changing());
  }

  void Finish() {
    for (int p = 0; p < Model::kPlaces; ++p) {
      EndFill(p);
      if (model_.places[p].changing) table_.EndChangeCopy(0, leases_[p], true);
    }
    if (model_.writing != -1) table_.EndWriteBack(0, true);
    if (model_.home_changing) table_.EndChangeHome(0, true);
    for (Lease& lease : leases_) (void)lease.Release();
    EXPECT_TRUE(table_.CheckIdle().ok()) << table_.CheckIdle().message();
  }

  std::mt19937_64 random_;
  ResidencyTable table_;
  Model model_;
  std::array<Lease, Model::kPlaces> leases_;
  std::array<bool, Model::kPlaces> from_home_{};
};

TEST(ResidencyWalkTest, TheTableAgreesWithVersionNumbers) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Walk(seed).Run(400);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(ResidencyDeathTest, AnEndWithoutABeginStopsTheProcess) {
  ResidencyTable table({MakeRow()});
  EXPECT_DEATH(table.EndUseHome(0), "did not begin");
  EXPECT_DEATH(table.EndWriteBack(0, true), "weight of group 3, chunk 2 .* is empty");
}

}  // namespace
}  // namespace marea
