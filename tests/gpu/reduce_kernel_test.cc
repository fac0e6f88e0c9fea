// The reduction's and the accumulation's kernels against the CPU's loops: the same bits.
#include <memory>

#include "engine/model/accumulate_cuda.h"
#include "engine/model/reduce_block.h"
#include "engine/model/reduce_cuda.h"
#include "tests/gpu/gpu_test.h"

namespace marea {
namespace {

enum class Values { kOrdinary, kOfAllKinds };

class ReduceKernelTest : public GpuTest {
 protected:
  template <typename Held>
  void Compare(size_t use_count, size_t elements, size_t skip, Values values) {
    SCOPED_TRACE(testing::Message() << use_count << " uses, " << elements << " elements, skip "
                                    << skip << ", " << sizeof(Held) << " bytes held");
    std::vector<std::vector<float>> uses;
    std::vector<const float*> host;
    for (size_t u = 0; u < use_count; ++u) {
      const uint32_t seed = static_cast<uint32_t>(100 * elements + u);
      uses.push_back(values == Values::kOrdinary ? Ordinary(elements, seed)
                                                 : OfAllKinds(elements, seed));
      host.push_back(uses[u].data());
    }
    std::vector<Held> expected(elements);
    std::vector<double> sums(ReduceBlocks(elements));
    for (size_t b = 0; b < sums.size(); ++b) {
      const uint64_t first = b * kReduceBlockElements;
      const uint64_t count = std::min(kReduceBlockElements, elements - first);
      sums[b] = ReduceBlock(host, first, count, expected.data());
    }

    std::vector<std::unique_ptr<GpuArray<float>>> arrays;
    std::vector<const float*> device;
    for (const std::vector<float>& use : uses) {
      arrays.push_back(std::make_unique<GpuArray<float>>(use, skip));
      device.push_back(arrays.back()->data());
    }
    GpuArray<Held> held(std::vector<Held>(elements), skip);
    GpuArray<double> scratch(std::vector<double>(ReduceScratchDoubles(elements)));
    GpuArray<double> square_sum(std::vector<double>{-1.0}, 0, Place::kPinnedHost);
    ASSERT_OK(ReduceUsesOnGpu(device, elements, held.data(), PrecisionOf<Held>(), scratch.data(),
                              square_sum.data(), stream_));
    ASSERT_OK(Finish());
    EXPECT_TRUE(SameBits(held.Get(), expected));
    EXPECT_EQ(std::bit_cast<uint64_t>(square_sum.Get()[0]),
              std::bit_cast<uint64_t>(AddBlockSums(sums)))
        << square_sum.Get()[0] << " is not " << AddBlockSums(sums);
    for (size_t u = 0; u < use_count; ++u) EXPECT_TRUE(SameBits(arrays[u]->Get(), uses[u]));
  }

  void CompareBoth(size_t use_count, size_t elements, size_t skip, Values values) {
    Compare<Bf16>(use_count, elements, skip, values);
    Compare<float>(use_count, elements, skip, values);
  }
};

TEST_F(ReduceKernelTest, SmallSizes) {
  for (const size_t elements : {0, 1, 3, 4, 8, 255, 1024, 4092, 4095, 4096, 4097, 12365}) {
    for (const size_t skip : {0, 1}) CompareBoth(2, elements, skip, Values::kOrdinary);
  }
}

TEST_F(ReduceKernelTest, EveryNumberOfUses) {
  for (size_t uses = 1; uses <= kReduceUsesMax; ++uses) {
    CompareBoth(uses, 50 * 2048, 0, Values::kOrdinary);
    CompareBoth(uses, 50 * 2048 + 1, 0, Values::kOrdinary);
  }
}

TEST_F(ReduceKernelTest, ValuesOfAllKinds) {
  for (const size_t uses : {1, 2, 3}) {
    // Whole chunks hold NaNs: the sum of squares is one, and everything held is compared.
    CompareBoth(uses, 100 * 2048, 0, Values::kOfAllKinds);
    for (size_t elements = 1; elements < 20; ++elements) {
      CompareBoth(uses, elements, 0, Values::kOfAllKinds);
    }
  }
}

// More blocks than the tiles in which block sums are added, by an uneven number.
TEST_F(ReduceKernelTest, ManyBlocks) {
  CompareBoth(2, 2500 * 4096 + 44, 0, Values::kOrdinary);
}

class AccumulateKernelTest : public GpuTest {
 protected:
  template <typename Source>
  void Compare(size_t count, size_t target_skip, size_t source_skip) {
    SCOPED_TRACE(testing::Message() << count << " values of " << sizeof(Source) << " bytes, skip "
                                    << target_skip << ", " << source_skip);
    const std::vector<float> start = Ordinary(count, 1);
    const std::vector<Source> added = As<Source>(Ordinary(count, 2, 0.1f));
    GpuArray<float> target(start, target_skip);
    GpuArray<Source> source(added, source_skip);
    std::vector<float> sum(count);
    for (size_t i = 0; i < count; ++i) sum[i] = start[i] + static_cast<float>(added[i]);
    ASSERT_OK(AccumulateOnGpu(target.data(), source.data(), PrecisionOf<Source>(), count,
                              Accumulate::kAdd, stream_));
    ASSERT_OK(Finish());
    EXPECT_TRUE(SameBits(target.Get(), sum)) << "added";
    ASSERT_OK(AccumulateOnGpu(target.data(), source.data(), PrecisionOf<Source>(), count,
                              Accumulate::kFirst, stream_));
    ASSERT_OK(Finish());
    for (size_t i = 0; i < count; ++i) sum[i] = static_cast<float>(added[i]);
    EXPECT_TRUE(SameBits(target.Get(), sum)) << "first";
    EXPECT_TRUE(SameBits(source.Get(), added));
  }
};

TEST_F(AccumulateKernelTest, SmallSizes) {
  for (const size_t count : {0, 1, 3, 4, 5, 1000, 4096, 4099}) {
    for (const size_t skip : {0, 1}) {
      Compare<float>(count, skip, 0);
      Compare<float>(count, 0, skip);
      Compare<Bf16>(count, skip, skip);
      Compare<Bf16>(count, 0, skip);
    }
  }
}

TEST_F(AccumulateKernelTest, ManyValues) {
  Compare<float>((9 << 20) + 5, 0, 0);
  Compare<Bf16>((9 << 20) + 5, 0, 0);
}

}  // namespace
}  // namespace marea
