// Initial weights, as Hugging Face Transformers draws them: normal(0, initializer_range), GPT-2's
// residual projections scaled by 1/sqrt(2 layers), ones and zeros for norms and biases.
//
// Every value is a function of (seed, tensor name, element) alone, so it depends neither on ranks,
// nor on placement, threads or the order of calls. The arithmetic is fixed too (integers, IEEE
// basic operations and square roots, no library functions): the same bits on every machine.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/model/model_shape.h"

namespace marea {

// Writes elements [first, first + values.size()) of the group. Padding, between tensors and at the
// end, is zero. Work is spread over `threads` (>= 1) threads that live only during the call; it
// blocks. REQUIRES: the range lies within the group's (padded) elements.
void FillInitialWeights(const GroupShape& group, uint64_t seed, uint64_t first,
                        std::span<float> values, uint32_t threads = 1);

// The standard normal value of element `element` of the tensor called `name`.
double InitialNormal(uint64_t seed, std::string_view name, uint64_t element);

// Inverse of the standard normal distribution function. REQUIRES: 0 < p < 1.
// Source: M. J. Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988); relative error
// about 1e-16.
double InverseNormal(double p);

}  // namespace marea
