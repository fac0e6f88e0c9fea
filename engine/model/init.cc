#include "engine/model/init.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "io/check.h"

namespace marea {
namespace {

using Block = std::array<uint32_t, 4>;

// Philox4x32-10: a keyed bijection of counters whose output passes the usual tests of randomness.
// Source: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
Block Philox(uint64_t counter, uint64_t key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  Block x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * x[0];
    const uint64_t product1 = kMultiplier1 * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return x;
}

uint64_t TensorKey(uint64_t seed, std::string_view name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

// The middle of one of 2^32 equal parts of (0, 1): never 0 or 1.
double Uniform(uint32_t bits) {
  return (bits + 0.5) * 0x1p-32;
}

// Natural logarithm of a normal number in (0, 1), from basic operations only, because libm's may
// differ from machine to machine. log(2^e m) with m in [sqrt(1/2), sqrt(2)), and
// log m = 2 atanh((m - 1) / (m + 1)) as a series whose argument is at most 0.172.
double Log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kSqrtHalf = 0.707106781186547524401;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000);  // [1/2, 1)
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * square + 1.0 / k;
  return exponent * kLn2 + 2 * s * series;
}

// c[0] + c[1] x + ... by Horner's rule.
template <size_t n>
double Polynomial(const std::array<double, n>& c, double x) {
  double sum = c[n - 1];
  for (size_t i = n - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

constexpr std::array<double, 8> kCentreTop = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                              1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                              4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                              3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr std::array<double, 8> kCentreBottom = {1.0,
                                                 4.2313330701600911252e+1,
                                                 6.8718700749205790830e+2,
                                                 5.3941960214247511077e+3,
                                                 2.1213794301586595867e+4,
                                                 3.9307895800092710610e+4,
                                                 2.8729085735721942674e+4,
                                                 5.2264952788528545610e+3};
constexpr std::array<double, 8> kMiddleTop = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                              5.76949722146069140550e0,  3.64784832476320460504e0,
                                              1.27045825245236838258e0,  2.41780725177450611770e-1,
                                              2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr std::array<double, 8> kMiddleBottom = {1.0,
                                                 2.05319162663775882187e0,
                                                 1.67638483018380384940e0,
                                                 6.89767334985100004550e-1,
                                                 1.48103976427480074590e-1,
                                                 1.51986665636164571966e-2,
                                                 5.47593808499534494600e-4,
                                                 1.05075007164441684324e-9};
constexpr std::array<double, 8> kTailTop = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                            1.78482653991729133580e0,  2.96560571828504891230e-1,
                                            2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                            2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr std::array<double, 8> kTailBottom = {1.0,
                                               5.99832206555887937690e-1,
                                               1.36929880922735805310e-1,
                                               1.48753612908506148525e-2,
                                               7.86869131145613259100e-4,
                                               1.84631831751005468180e-5,
                                               1.42151175831644588870e-7,
                                               2.04426310338993978564e-15};

// Writes elements [first, first + values.size()) of one tensor.
void FillNormal(const TensorShape& tensor, uint64_t seed, uint64_t first, std::span<float> values) {
  const uint64_t key = TensorKey(seed, tensor.name);
  Block block{};
  for (uint64_t i = 0; i < values.size(); ++i) {
    const uint64_t element = first + i;
    if (i == 0 || element % 4 == 0) block = Philox(element / 4, key);
    values[i] = static_cast<float>(tensor.init_std * InverseNormal(Uniform(block[element % 4])));
  }
  if (tensor.zero_row < 0) return;
  const uint64_t row_elements = static_cast<uint64_t>(tensor.dims.back());
  const uint64_t row_first = static_cast<uint64_t>(tensor.zero_row) * row_elements;
  const uint64_t begin = std::clamp(row_first, first, first + values.size());
  const uint64_t end = std::clamp(row_first + row_elements, first, first + values.size());
  std::fill(values.begin() + (begin - first), values.begin() + (end - first), 0.0f);
}

void FillRange(const GroupShape& group, uint64_t seed, uint64_t first, std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
  const uint64_t last = first + values.size();
  for (const TensorShape& tensor : group.tensors) {
    const uint64_t begin = std::max(first, tensor.first_element);
    const uint64_t end = std::min(last, tensor.first_element + tensor.elements);
    if (begin >= end) continue;
    const std::span<float> part = values.subspan(begin - first, end - begin);
    switch (tensor.init) {
      case InitKind::kZeros:
        break;
      case InitKind::kOnes:
        std::fill(part.begin(), part.end(), 1.0f);
        break;
      case InitKind::kNormal:
        FillNormal(tensor, seed, begin - tensor.first_element, part);
        break;
    }
  }
}

}  // namespace

double InverseNormal(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kCentreTop, r) / Polynomial(kCentreBottom, r);
  }
  double r = std::sqrt(-Log(q < 0 ? p : 1 - p));
  double value;
  if (r <= 5) {
    r -= 1.6;
    value = Polynomial(kMiddleTop, r) / Polynomial(kMiddleBottom, r);
  } else {
    r -= 5;
    value = Polynomial(kTailTop, r) / Polynomial(kTailBottom, r);
  }
  return q < 0 ? -value : value;
}

double InitialNormal(uint64_t seed, std::string_view name, uint64_t element) {
  return InverseNormal(Uniform(Philox(element / 4, TensorKey(seed, name))[element % 4]));
}

void FillInitialWeights(const GroupShape& group, uint64_t seed, uint64_t first,
                        std::span<float> values, uint32_t threads) {
  MAREA_CHECK(threads >= 1, "at least one thread must do the work");
  MAREA_CHECK(first <= group.elements && values.size() <= group.elements - first,
              "the range must lie within the group");
  // Below this a thread costs more than it saves.
  constexpr uint64_t kPartMin = uint64_t{1} << 16;
  const uint64_t parts = std::clamp<uint64_t>(values.size() / kPartMin, 1, threads);
  const uint64_t part_size = (values.size() + parts - 1) / parts;
  std::vector<std::jthread> workers;
  for (uint64_t part = 1; part < parts; ++part) {
    const uint64_t begin = std::min<uint64_t>(part * part_size, values.size());
    const std::span<float> piece =
        values.subspan(begin, std::min<uint64_t>(part_size, values.size() - begin));
    workers.emplace_back(
        [&group, seed, first, begin, piece] { FillRange(group, seed, first + begin, piece); });
  }
  FillRange(group, seed, first, values.first(std::min<uint64_t>(part_size, values.size())));
}

}  // namespace marea
