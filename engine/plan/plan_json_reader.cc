// The reading half of plan_json.h.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/json_text.h"
#include "engine/plan/plan_json.h"
#include "engine/plan/plan_names.h"

namespace marea {
namespace {

using nlohmann::json;

// Typed reads that keep the first failure; later reads return zeros, so that a parser reads on and
// asks `ok()` where an index is about to be followed.
class PlanReader {
 public:
  explicit PlanReader(const std::string& origin) : origin_(origin) {}

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  void set_place(std::string place) { place_ = std::move(place); }

  void Fail(const std::string& what) {
    if (!ok()) return;
    const std::string place = place_.empty() ? "" : ", " + place_;
    status_ = Status::InvalidArgument(fmt::format(
        "{}{}: {}; write the plan again with `marea plan --json`", origin_, place, what));
  }

  const json& Member(const json& object, const char* key) {
    static const json null;
    if (object.is_object()) {
      const auto found = object.find(key);
      if (found != object.end()) return *found;
    }
    Fail(fmt::format("\"{}\" is missing", key));
    return null;
  }
  bool Has(const json& object, const char* key) const {
    return object.is_object() && object.contains(key);
  }

  // A list of `size` elements, or of any number (kAnySize). Otherwise a failure and a list of none.
  static constexpr size_t kAnySize = SIZE_MAX;
  const json& List(const json& value, const char* what, size_t size) {
    static const json none = json::array();
    if (value.is_array() && (size == kAnySize || value.size() == size)) return value;
    Fail(fmt::format("\"{}\" is not the list that it should be", what));
    return none;
  }

  uint64_t Number(const json& value, const char* what, uint64_t limit = UINT64_MAX) {
    if (value.is_number_unsigned() && value.get<uint64_t>() <= limit) return value.get<uint64_t>();
    Fail(fmt::format("\"{}\" is no whole number of at most {}", what, limit));
    return 0;
  }
  uint64_t NumberOf(const json& object, const char* key) {
    return Number(Member(object, key), key);
  }
  uint32_t SmallOf(const json& object, const char* key) {
    return static_cast<uint32_t>(Number(Member(object, key), key, UINT32_MAX));
  }
  uint32_t SmallOr(const json& object, const char* key, uint32_t absent) {
    return Has(object, key) ? SmallOf(object, key) : absent;
  }

  std::string Text(const json& value, const char* what) {
    if (value.is_string()) return value.get<std::string>();
    Fail(fmt::format("\"{}\" is no text", what));
    return {};
  }

  template <typename Enum, typename NameOf>
  Enum Name(const json& value, const char* what, int count, const NameOf& name_of) {
    const std::string text = Text(value, what);
    for (int i = 0; i < count; ++i) {
      if (text == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
    }
    Fail(fmt::format("\"{}\" is \"{}\", which is unknown", what, text));
    return Enum{};
  }

 private:
  const std::string& origin_;
  std::string place_;
  Status status_ = Status::Ok();
};

void ReadHeader(PlanReader& reader, const json& root, PlanFile& file) {
  const std::string format =
      reader.Has(root, "format") ? reader.Text(root["format"], "format") : "";
  if (format != kPlanFormat) reader.Fail("this is no plan of marea");
  const uint32_t version = reader.SmallOf(root, "version");
  if (reader.ok() && version != kPlanFormatVersion) {
    reader.Fail(fmt::format("the plan has format version {}, and this marea reads {}", version,
                            kPlanFormatVersion));
  }
  file.parameters = reader.NumberOf(root, "parameters");
  const json& spec = reader.Member(root, "spec");
  file.precision = reader.Text(reader.Member(spec, "precision"), "precision");
  file.micro_count = reader.SmallOf(spec, "micro_count");
  file.wave_size = reader.SmallOf(spec, "wave_size");
  file.chunk_elements = reader.NumberOf(spec, "chunk_elements");
  const json& homes = reader.Member(root, "home_bytes");
  const json& peaks = reader.Member(root, "peak_bytes");
  for (int tier = 0; tier < kTierCount; ++tier) {
    const char* name = TierName(static_cast<Tier>(tier));
    file.peak_bytes[tier] = reader.NumberOf(peaks, name);
    const json& kinds = reader.Member(homes, name);
    for (int kind = 0; kind < kShardKindCount; ++kind) {
      const char* kind_name = ShardKindName(static_cast<ShardKind>(kind));
      if (reader.Has(kinds, kind_name)) {
        file.homes[tier][kind] = reader.NumberOf(kinds, kind_name);
      }
    }
  }
}

void ReadArenas(PlanReader& reader, const json& root, StepPlan& plan) {
  const json& spaces = reader.Member(root, "space_bytes");
  for (int space = 0; space < kSpaceCount; ++space) {
    plan.space_bytes[space] = reader.NumberOf(spaces, SpaceName(static_cast<Space>(space)));
  }
  const json& depths = reader.Member(root, "lane_depth");
  for (int lane = 0; lane < kLaneCount; ++lane) {
    plan.lane_depth[lane] = reader.SmallOf(depths, LaneName(static_cast<Lane>(lane)));
  }
  for (const json& ring : reader.List(reader.Member(root, "rings"), "rings", reader.kAnySize)) {
    reader.set_place(fmt::format("rings[{}]", plan.rings.size()));
    plan.rings.push_back(
        {.name = reader.Text(reader.Member(ring, "name"), "name"),
         .space = reader.Name<Space>(reader.Member(ring, "space"), "space", kSpaceCount, SpaceName),
         .offset = reader.NumberOf(ring, "offset"),
         .bytes = reader.NumberOf(ring, "bytes")});
  }
  reader.set_place("");
}

void ReadBuffers(PlanReader& reader, const json& root, StepPlan& plan) {
  for (const json& json_buffer :
       reader.List(reader.Member(root, "buffers"), "buffers", reader.kAnySize)) {
    reader.set_place(fmt::format("buffers[{}]", plan.buffers.size()));
    Buffer buffer{
        .space = reader.Name<Space>(reader.Member(json_buffer, "space"), "space", kSpaceCount,
                                    SpaceName),
        .bytes = reader.NumberOf(json_buffer, "bytes"),
        .offset = reader.NumberOf(json_buffer, "offset"),
        .ring = reader.SmallOr(json_buffer, "ring", kHomeRing),
        .content = {.kind = reader.Name<ShardKind>(reader.Member(json_buffer, "kind"), "kind",
                                                   kShardKindCount, ShardKindName),
                    .group = reader.SmallOr(json_buffer, "group", kNone),
                    .index = reader.SmallOr(json_buffer, "index", 0),
                    .micro = reader.SmallOr(json_buffer, "micro", 0)}};
    if (reader.Has(json_buffer, "first_byte")) {
      buffer.content.first_byte = reader.NumberOf(json_buffer, "first_byte");
    }
    if (buffer.ring != kHomeRing && buffer.ring >= plan.rings.size()) {
      reader.Fail("\"ring\" names a ring that is not in the file");
    }
    plan.buffers.push_back(buffer);
  }
  reader.set_place("");
}

Access ReadAccess(PlanReader& reader, const json& value, const StepPlan& plan) {
  const json& access = reader.List(value, "accesses", 4);
  if (access.empty()) return {};
  const Access result{
      .buffer = static_cast<uint32_t>(reader.Number(access[0], "accesses", UINT32_MAX)),
      .offset = reader.Number(access[1], "accesses"),
      .bytes = reader.Number(access[2], "accesses"),
      .mode = reader.Name<AccessMode>(access[3], "accesses", kAccessModeCount, AccessModeName)};
  if (static_cast<int>(result.mode) == 0) reader.Fail("an access neither reads nor writes");
  if (result.buffer >= plan.buffers.size()) {
    reader.Fail(fmt::format("it accesses buffer {}, which is not in the file", result.buffer));
  }
  return result;
}

Wait ReadWait(PlanReader& reader, const json& value) {
  const json& wait = reader.List(value, "waits", 3);
  if (wait.empty()) return {};
  return {.lane = reader.Name<Lane>(wait[0], "waits", kLaneCount, LaneName),
          .position = static_cast<uint32_t>(reader.Number(wait[1], "waits", UINT32_MAX)),
          .steps_back = static_cast<uint8_t>(reader.Number(wait[2], "waits", 1))};
}

Op ReadOp(PlanReader& reader, const json& json_op, const StepPlan& plan) {
  Op op{
      .kind = reader.Name<OpKind>(reader.Member(json_op, "kind"), "kind", kOpKindCount, OpKindName),
      .lane = reader.Name<Lane>(reader.Member(json_op, "lane"), "lane", kLaneCount, LaneName),
      .block = reader.SmallOr(json_op, "block", kNone),
      .group = reader.SmallOr(json_op, "group", kNone),
      .chunk = reader.SmallOr(json_op, "chunk", 0),
      .micro = reader.SmallOr(json_op, "micro", kNone),
      .position = reader.SmallOf(json_op, "position")};
  if (reader.Has(json_op, "when")) {
    op.when = reader.Name<When>(json_op["when"], "when", kWhenCount, WhenName);
  }
  for (const json& access :
       reader.List(reader.Member(json_op, "accesses"), "accesses", reader.kAnySize)) {
    op.accesses.push_back(ReadAccess(reader, access, plan));
  }
  for (const json& wait : reader.List(reader.Member(json_op, "waits"), "waits", reader.kAnySize)) {
    op.waits.push_back(ReadWait(reader, wait));
  }
  return op;
}

void ReadOps(PlanReader& reader, const json& root, StepPlan& plan) {
  for (const json& json_op : reader.List(reader.Member(root, "ops"), "ops", reader.kAnySize)) {
    if (!reader.ok()) return;
    reader.set_place(fmt::format("ops[{}]", plan.ops.size()));
    Op op = ReadOp(reader, json_op, plan);
    std::vector<uint32_t>& lane = plan.lane_ops[static_cast<int>(op.lane)];
    if (op.position != lane.size()) reader.Fail("\"position\" is not its place in its lane");
    lane.push_back(static_cast<uint32_t>(plan.ops.size()));
    plan.ops.push_back(std::move(op));
  }
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    for (const Wait& wait : plan.ops[i].waits) {
      if (wait.position < plan.lane_ops[static_cast<int>(wait.lane)].size()) continue;
      reader.set_place(fmt::format("ops[{}]", i));
      reader.Fail(fmt::format("it waits for {} #{}, which is not in the file", LaneName(wait.lane),
                              wait.position));
    }
  }
}

}  // namespace

Result<PlanFile> ParsePlan(const std::string& text, const std::string& origin) {
  MAREA_ASSIGN_OR_RETURN(const json root, ParseJsonText(text, origin));
  PlanReader reader(origin);
  PlanFile file;
  ReadHeader(reader, root, file);
  if (reader.ok()) ReadArenas(reader, root, file.plan);
  if (reader.ok()) ReadBuffers(reader, root, file.plan);
  if (reader.ok()) ReadOps(reader, root, file.plan);
  if (!reader.ok()) return reader.status();
  return file;
}

}  // namespace marea
