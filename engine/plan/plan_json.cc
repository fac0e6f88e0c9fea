#include "engine/plan/plan_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/plan/plan_names.h"

namespace marea {
namespace {

using nlohmann::ordered_json;

ordered_json SpecJson(const PlanSpec& spec) {
  ordered_json json;
  json["precision"] = PrecisionName(spec.precision);
  json["gradient_precision"] = PrecisionName(spec.gradient_precision);
  json["micro_count"] = spec.micro_count;
  json["wave_size"] = spec.wave_size;
  json["wave_count"] = WaveCount(spec);
  json["chunk_elements"] = spec.chunk_elements;
  json["weight_ring_bytes"] = spec.weight_ring_bytes;
  json["accumulator_ring_bytes"] = spec.accumulator_ring_bytes;
  json["staging_ring_bytes"] = spec.staging_ring_bytes;
  json["activation_ring_bytes"] = spec.activation_ring_bytes;
  json["nvme_depth"] = spec.nvme_depth;
  return json;
}

// A group with the home of each of its shards.
ordered_json GroupJson(const PlanSpec& spec, uint32_t group) {
  const GroupShape& shape = spec.model->groups[group];
  ordered_json json;
  json["name"] = shape.name;
  json["parameters"] = shape.parameters;
  json["elements"] = shape.elements;
  json["frozen"] = shape.frozen;
  ordered_json& homes = json["homes"] = ordered_json::object();
  for (const ShardKind kind : kPersistentKinds) {
    if (!HasShard(spec, group, kind)) continue;
    homes[ShardKindName(kind)] = TierName(spec.placement.home(group, kind));
  }
  return json;
}

ordered_json BlockJson(const BlockShape& block) {
  ordered_json json;
  json["name"] = block.name;
  json["kind"] = BlockKindName(block.kind);
  json["groups"] = block.groups;
  json["input_bytes"] = block.input_bytes;
  json["output_bytes"] = block.output_bytes;
  return json;
}

ordered_json HomesJson(const TierKindBytes& bytes) {
  ordered_json json;
  for (int tier = 0; tier < kTierCount; ++tier) {
    ordered_json& kinds = json[TierName(static_cast<Tier>(tier))] = ordered_json::object();
    for (int kind = 0; kind < kShardKindCount; ++kind) {
      if (bytes[tier][kind] == 0) continue;
      kinds[ShardKindName(static_cast<ShardKind>(kind))] = bytes[tier][kind];
    }
  }
  return json;
}

ordered_json RingJson(const Ring& ring) {
  return {{"name", ring.name},
          {"space", SpaceName(ring.space)},
          {"offset", ring.offset},
          {"bytes", ring.bytes}};
}

ordered_json BufferJson(const Buffer& buffer) {
  ordered_json json = {
      {"space", SpaceName(buffer.space)}, {"offset", buffer.offset}, {"bytes", buffer.bytes}};
  if (buffer.ring != kHomeRing) json["ring"] = buffer.ring;
  json["kind"] = ShardKindName(buffer.content.kind);
  if (buffer.content.group != kNone) json["group"] = buffer.content.group;
  if (buffer.content.index != 0) json["index"] = buffer.content.index;
  if (buffer.content.micro != 0) json["micro"] = buffer.content.micro;
  if (buffer.content.first_byte != 0) json["first_byte"] = buffer.content.first_byte;
  return json;
}

ordered_json OpJson(const Op& op) {
  ordered_json json = {
      {"lane", LaneName(op.lane)}, {"position", op.position}, {"kind", OpKindName(op.kind)}};
  if (op.when != When::kAlways) json["when"] = WhenName(op.when);
  if (op.block != kNone) json["block"] = op.block;
  if (op.group != kNone) json["group"] = op.group;
  if (op.chunk != 0) json["chunk"] = op.chunk;
  if (op.micro != kNone) json["micro"] = op.micro;
  ordered_json& accesses = json["accesses"] = ordered_json::array();
  for (const Access& access : op.accesses) {
    accesses.push_back(ordered_json::array(
        {access.buffer, access.offset, access.bytes, AccessModeName(access.mode)}));
  }
  ordered_json& waits = json["waits"] = ordered_json::array();
  for (const Wait& wait : op.waits) {
    waits.push_back(ordered_json::array({LaneName(wait.lane), wait.position, wait.steps_back}));
  }
  return json;
}

std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// "key": [ one element a line ]
template <typename Items, typename ToElement>
std::string ListText(const char* key, const Items& items, const ToElement& to_element) {
  std::string text = fmt::format("\"{}\": [", key);
  const char* separator = "\n";
  for (const auto& item : items) {
    text += separator + Dump(to_element(item));
    separator = ",\n";
  }
  return text + "\n]";
}

std::string MemberText(const char* key, const ordered_json& value) {
  return fmt::format("\"{}\": {},\n", key, Dump(value));
}

std::vector<uint32_t> Indices(size_t count) {
  std::vector<uint32_t> indices(count);
  for (size_t i = 0; i < count; ++i) indices[i] = static_cast<uint32_t>(i);
  return indices;
}

}  // namespace

std::string ToJson(const PlannedRun& planned, const std::string& step_estimate) {
  const PlanSpec& spec = planned.spec;
  const StepPlan& plan = planned.plan;
  ordered_json space_bytes;
  for (int space = 0; space < kSpaceCount; ++space) {
    space_bytes[SpaceName(static_cast<Space>(space))] = plan.space_bytes[space];
  }
  ordered_json lane_depth;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lane_depth[LaneName(static_cast<Lane>(lane))] = plan.lane_depth[lane];
  }
  const ordered_json peaks = {{"vram", planned.vram_peak_bytes},
                              {"ram", planned.ram_peak_bytes},
                              {"nvme", planned.nvme_peak_bytes}};

  std::string text = "{\n" + MemberText("format", kPlanFormat);
  text += MemberText("version", kPlanFormatVersion);
  text += MemberText("parameters", spec.model->parameters);
  text += MemberText("spec", SpecJson(spec));
  text += MemberText("home_bytes", HomesJson(planned.homes));
  text += MemberText("peak_bytes", peaks);
  text += MemberText("workspace_bytes", planned.workspace_bytes);
  if (!step_estimate.empty()) text += "\"step_estimate\": " + step_estimate + ",\n";
  text += MemberText("partial_home", TierName(spec.placement.partial));
  text += MemberText("activation_home", TierName(spec.placement.activation));
  text += ListText("groups", Indices(spec.model->groups.size()),
                   [&](uint32_t group) { return GroupJson(spec, group); });
  text += ",\n" + ListText("blocks", spec.model->blocks, BlockJson) + ",\n";
  text += MemberText("space_bytes", space_bytes);
  text += MemberText("lane_depth", lane_depth);
  text += ListText("rings", plan.rings, RingJson) + ",\n";
  text += ListText("buffers", plan.buffers, BufferJson) + ",\n";
  text += ListText("ops", plan.ops, OpJson);
  return text + "\n}\n";
}

}  // namespace marea
