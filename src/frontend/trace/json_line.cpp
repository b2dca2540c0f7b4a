// SPDX-License-Identifier: Apache-2.0
#include "frontend/trace/json_line.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/trace/line_defect.hpp"
#include "frontend/trace/record_rules.hpp"
#include "memstrata/core/error/error_text.hpp"
#include "memstrata/core/error/trace_error.hpp"
#include "memstrata/frontend/trace/trace_format.hpp"

namespace memstrata::detail {
namespace {

constexpr std::size_t deepest_nesting = 64;

enum class Field : std::uint8_t {
  other,
  version,
  block_tokens,
  time_unit,
  synthetic,
  made_by,
  timestamp,
  input_length,
  output_length,
  hash_ids,
  tenant,
  session,
  token_ids,
  block_hashes,
};

struct FieldName {
  std::string_view name;
  Field field;
  bool in_record;
  bool in_log;
};

constexpr std::array<FieldName, 13> field_names = {{
    {.name = "memstrata_trace", .field = Field::version, .in_record = true, .in_log = false},
    {.name = "block_tokens", .field = Field::block_tokens, .in_record = true, .in_log = false},
    {.name = "time_unit", .field = Field::time_unit, .in_record = true, .in_log = false},
    {.name = "synthetic", .field = Field::synthetic, .in_record = true, .in_log = false},
    {.name = "made_by", .field = Field::made_by, .in_record = true, .in_log = false},
    {.name = "timestamp", .field = Field::timestamp, .in_record = true, .in_log = true},
    {.name = "input_length", .field = Field::input_length, .in_record = true, .in_log = true},
    {.name = "output_length", .field = Field::output_length, .in_record = true, .in_log = true},
    {.name = "hash_ids", .field = Field::hash_ids, .in_record = true, .in_log = false},
    {.name = "tenant", .field = Field::tenant, .in_record = true, .in_log = true},
    {.name = "session", .field = Field::session, .in_record = true, .in_log = true},
    {.name = "token_ids", .field = Field::token_ids, .in_record = false, .in_log = true},
    {.name = "block_hashes", .field = Field::block_hashes, .in_record = false, .in_log = true},
}};

Field field_called(std::string_view name, LineKind kind) {
  const auto* const found = std::ranges::find_if(field_names, [&](const FieldName& entry) {
    return entry.name == name && (kind == LineKind::record ? entry.in_record : entry.in_log);
  });
  return found == field_names.end() ? Field::other : found->field;
}

ErrorText name_of(Field field) {
  const auto* const found = std::ranges::find(field_names, field, &FieldName::field);
  return found == field_names.end() ? ErrorText() : ErrorText::copy(found->name);
}

constexpr bool is_list(Field field) noexcept {
  return field == Field::hash_ids || field == Field::token_ids || field == Field::block_hashes;
}

constexpr bool is_text(Field field) noexcept {
  return field == Field::time_unit || field == Field::made_by || field == Field::tenant ||
         field == Field::session;
}

ErrorText text_expected(Field field) {
  const std::size_t longest =
      field == Field::tenant || field == Field::session ? longest_name : longest_text;
  return ErrorText::copy(fmt::format("a text of at most {} bytes", longest));
}

// Takes the events of nlohmann's parser. Every callback answers whether to go on.
class Handler {
 public:
  Handler(std::string_view text, JsonLine& line, LineKind kind, std::uint64_t largest_time)
      : text_(text), line_(line), kind_(kind), largest_time_(largest_time) {}

  bool null();
  bool boolean(bool value);
  bool number_integer(std::int64_t value);
  bool number_unsigned(std::uint64_t value);
  bool number_float(double value, const std::string& text);
  bool string(std::string& value);
  bool binary(std::vector<std::uint8_t>& value);
  bool start_object(std::size_t elements);
  bool key(std::string& name);
  bool end_object();
  bool start_array(std::size_t elements);
  bool end_array();

  [[nodiscard]] bool saw_object() const noexcept { return saw_object_; }

  // nlohmann reports a number beyond every double in this way, too.
  bool parse_error(std::size_t position,
                   const std::string& token,
                   const nlohmann::json::out_of_range& why);

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& /*token*/, const Exception& /*why*/) {
    return refuse_text(position);
  }

 private:
  enum class Spot : std::uint8_t { ignored, field, element };

  [[nodiscard]] Spot spot() const noexcept;
  [[nodiscard]] ErrorText spot_name() const;
  [[nodiscard]] std::size_t elements() const noexcept;
  [[nodiscard]] std::uint64_t largest() const noexcept;
  [[nodiscard]] ErrorText expected() const;
  bool refuse(LineDefect defect);
  bool refuse(TraceDefect defect, ErrorText found);
  bool refuse_type(ErrorText found);
  bool refuse_text(std::size_t position);
  bool open(bool is_array);
  bool close();
  bool take_number(std::uint64_t value);
  bool take_element(std::uint64_t value);
  bool take_hash(ContentKey key);
  bool has_room();

  std::string_view text_;
  JsonLine& line_;
  LineKind kind_;
  std::uint64_t largest_time_;
  Field field_ = Field::other;
  std::uint32_t seen_ = 0;  // One bit per field.
  bool in_list_ = false;    // Inside the list that is the value of `field_`.
  std::size_t depth_ = 0;
  bool saw_object_ = false;
};

Handler::Spot Handler::spot() const noexcept {
  if (field_ == Field::other) {
    return Spot::ignored;
  }
  return in_list_ ? Spot::element : Spot::field;
}

std::size_t Handler::elements() const noexcept {
  if (field_ == Field::hash_ids) {
    return line_.hash_ids ? line_.hash_ids->size() : 0;
  }
  if (field_ == Field::token_ids) {
    return line_.token_ids ? line_.token_ids->size() : 0;
  }
  return line_.block_hashes ? line_.block_hashes->size() : 0;
}

ErrorText Handler::spot_name() const {
  if (!in_list_) {
    return name_of(field_);
  }
  return ErrorText::copy(fmt::format("{}[{}]", name_of(field_).view(), elements()));
}

std::uint64_t Handler::largest() const noexcept {
  return field_ == Field::timestamp ? largest_time_ : trace_largest_number;
}

ErrorText Handler::expected() const {
  if (is_list(field_) && !in_list_) {
    return "a list";
  }
  if (field_ == Field::block_hashes) {
    return "a text or an integer";
  }
  if (is_text(field_)) {
    return text_expected(field_);
  }
  if (field_ == Field::synthetic) {
    return "true or false";
  }
  return integer_between(field_ == Field::input_length ? 1 : 0, largest());
}

bool Handler::refuse(LineDefect defect) {
  if (!line_.defect) {
    line_.defect = std::move(defect);
  }
  return false;
}

bool Handler::refuse(TraceDefect defect, ErrorText found) {
  return refuse(
      {.defect = defect, .field = spot_name(), .expected = expected(), .found = std::move(found)});
}

// Where an integer is expected, anything else is "not an integer"; elsewhere it is of the wrong type.
bool Handler::refuse_type(ErrorText found) {
  const bool wants_integer = !is_text(field_) && field_ != Field::synthetic &&
                             field_ != Field::block_hashes && is_list(field_) == in_list_;
  return refuse(wants_integer ? TraceDefect::not_an_integer : TraceDefect::wrong_type,
                std::move(found));
}

// `position` counts from 1 and names the first byte that cannot be; one behind the text is its end.
bool Handler::refuse_text(std::size_t position) {
  const bool is_end = position == 0 || position > text_.size();
  return refuse({.defect = TraceDefect::malformed,
                 .field = {},
                 .expected = "one object of JSON",
                 .found = is_end
                              ? ErrorText("the end of the line")
                              : ErrorText::copy(fmt::format("{} at byte {} of the line",
                                                            printable(text_.substr(position - 1)),
                                                            position))});
}

bool Handler::parse_error(std::size_t position,
                          const std::string& token,
                          const nlohmann::json::out_of_range& /*why*/) {
  return spot() == Spot::ignored ? refuse_text(position) : number_float(0, token);
}

bool Handler::null() {
  switch (spot()) {
    case Spot::ignored:
    case Spot::field:
      return true;
    case Spot::element:
      return refuse_type("null");
  }
  std::unreachable();
}

bool Handler::boolean(bool value) {
  if (spot() == Spot::ignored) {
    return true;
  }
  if (field_ == Field::synthetic) {
    line_.synthetic = value;
    return true;
  }
  return value ? refuse_type("true") : refuse_type("false");
}

bool Handler::number_integer(std::int64_t value) {
  if (spot() == Spot::ignored) {
    return true;
  }
  if (spot() == Spot::element && field_ == Field::block_hashes) {
    return take_element(static_cast<std::uint64_t>(value));
  }
  if (field_ == Field::tenant || field_ == Field::session) {
    std::string text = std::to_string(value);
    return string(text);
  }
  if (is_text(field_) || field_ == Field::synthetic || (is_list(field_) && !in_list_)) {
    return refuse_type(ErrorText::copy(std::to_string(value)));
  }
  // The parser hands over what is not negative as unsigned, but for "-0".
  return value < 0 ? refuse(TraceDefect::negative, ErrorText::copy(std::to_string(value)))
                   : number_unsigned(0);
}

bool Handler::number_unsigned(std::uint64_t value) {
  if (spot() == Spot::ignored) {
    return true;
  }
  if (spot() == Spot::element && field_ == Field::block_hashes) {
    return take_element(value);
  }
  if (field_ == Field::tenant || field_ == Field::session) {
    std::string text = std::to_string(value);
    return string(text);
  }
  if (is_text(field_) || field_ == Field::synthetic || (is_list(field_) && !in_list_)) {
    return refuse_type(ErrorText::copy(std::to_string(value)));
  }
  if (value > largest()) {
    return refuse(TraceDefect::too_large, ErrorText::copy(std::to_string(value)));
  }
  return in_list_ ? take_element(value) : take_number(value);
}

bool Handler::number_float(double /*value*/, const std::string& text) {
  if (spot() == Spot::ignored) {
    return true;
  }
  const bool wants_integer = !is_text(field_) && field_ != Field::synthetic &&
                             field_ != Field::block_hashes && is_list(field_) == in_list_;
  // Integers beyond 64 bits arrive here as well.
  if (wants_integer && text.find_first_of(".eE") == std::string::npos) {
    return refuse(text.starts_with('-') ? TraceDefect::negative : TraceDefect::too_large,
                  ErrorText::copy(printable(text)));
  }
  return refuse_type(ErrorText::copy(printable(text)));
}

bool Handler::string(std::string& value) {
  if (spot() == Spot::ignored) {
    return true;
  }
  if (in_list_ && field_ == Field::block_hashes) {
    return has_room() && take_hash(content_key(value));
  }
  if (!is_text(field_)) {
    return refuse_type(ErrorText::copy(printable(value)));
  }
  const bool is_name = field_ == Field::tenant || field_ == Field::session;
  if (value.size() > (is_name ? longest_name : longest_text)) {
    return refuse(TraceDefect::too_large, ErrorText::copy(fmt::format("{} bytes", value.size())));
  }
  if (field_ == Field::tenant) {
    line_.tenant = std::move(value);
  } else if (field_ == Field::session) {
    line_.session = std::move(value);
  } else if (field_ == Field::time_unit) {
    line_.time_unit = std::move(value);
  } else {
    line_.made_by = std::move(value);
  }
  return true;
}

// JSON has no binary values.
bool Handler::binary(std::vector<std::uint8_t>& /*value*/) {
  return refuse_type("binary data");
}

bool Handler::start_object(std::size_t /*elements*/) {
  return open(false);
}

bool Handler::start_array(std::size_t /*elements*/) {
  return open(true);
}

bool Handler::end_object() {
  return close();
}

bool Handler::end_array() {
  return close();
}

bool Handler::open(bool is_array) {
  const ErrorText opened = is_array ? ErrorText("a list") : ErrorText("an object");
  if (depth_ == 0 && is_array) {
    return refuse({.defect = TraceDefect::malformed,
                   .field = {},
                   .expected = "one object of JSON",
                   .found = opened});
  }
  if (depth_ == deepest_nesting) {
    return refuse({.defect = TraceDefect::nested_too_deep,
                   .field = spot_name(),
                   .expected = ErrorText::copy(
                       fmt::format("at most {} nested lists and objects", deepest_nesting)),
                   .found = "more"});
  }
  ++depth_;
  saw_object_ = true;
  if (spot() == Spot::ignored || depth_ == 1) {
    return true;
  }
  if (!is_array || !is_list(field_) || in_list_) {
    return refuse_type(opened);
  }
  in_list_ = true;
  if (field_ == Field::hash_ids) {
    line_.hash_ids.emplace();
  } else if (field_ == Field::token_ids) {
    line_.token_ids.emplace();
  } else {
    line_.block_hashes.emplace();
  }
  return true;
}

bool Handler::close() {
  --depth_;
  if (depth_ == 1) {
    in_list_ = false;
  }
  return true;
}

bool Handler::key(std::string& name) {
  if (depth_ != 1) {
    return true;
  }
  field_ = field_called(name, kind_);
  if (field_ == Field::other) {
    return true;
  }
  if (field_ == Field::version) {
    line_.is_header = true;
  }
  const std::uint32_t bit = 1U << std::to_underlying(field_);
  if ((seen_ & bit) != 0) {
    return refuse({.defect = TraceDefect::repeated_field,
                   .field = name_of(field_),
                   .expected = "it once",
                   .found = "it twice"});
  }
  seen_ |= bit;
  return true;
}

bool Handler::take_number(std::uint64_t value) {
  switch (field_) {
    case Field::version:
      line_.version = value;
      return true;
    case Field::block_tokens:
      line_.block_tokens = value;
      return true;
    case Field::timestamp:
      line_.timestamp = value;
      return true;
    case Field::input_length:
      line_.input_length = value;
      return true;
    case Field::output_length:
      line_.output_length = value;
      return true;
    case Field::other:
    case Field::time_unit:
    case Field::synthetic:
    case Field::made_by:
    case Field::hash_ids:
    case Field::tenant:
    case Field::session:
    case Field::token_ids:
    case Field::block_hashes:
      break;
  }
  std::unreachable();  // Every caller has looked whether the field holds a number.
}

bool Handler::take_element(std::uint64_t value) {
  if (field_ == Field::token_ids) {
    line_.token_ids->push_back(static_cast<std::uint32_t>(value));
    return true;
  }
  if (!has_room()) {
    return false;
  }
  if (field_ == Field::hash_ids) {
    line_.hash_ids->push_back(value);
    return true;
  }
  return take_hash({.high = 0, .low = value});
}

bool Handler::take_hash(ContentKey key) {
  line_.block_hashes->push_back(key);
  return true;
}

// No good record has more blocks than the longest prompt; a longer list would only take memory.
bool Handler::has_room() {
  const std::uint64_t most = blocks_of(trace_largest_number);
  if (elements() < most) {
    return true;
  }
  return refuse({.defect = TraceDefect::wrong_block_count,
                 .field = name_of(field_),
                 .expected = ErrorText::copy(fmt::format("at most {} blocks", most)),
                 .found = "more"});
}

}  // namespace

ContentKey content_key(std::string_view bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

JsonLine parse_json_line(std::string_view text, LineKind kind, std::uint64_t largest_time) {
  JsonLine line;
  Handler handler(text, line, kind, largest_time);
  const bool is_whole = nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &handler);
  if (!line.defect && (!is_whole || !handler.saw_object())) {
    line.defect = LineDefect{.defect = TraceDefect::malformed,
                             .field = {},
                             .expected = "one object of JSON",
                             .found = ErrorText::copy(printable(text))};
  }
  return line;
}

LineDefect missing_field(ErrorText field, ErrorText expected) {
  return {.defect = TraceDefect::missing_field,
          .field = std::move(field),
          .expected = std::move(expected),
          .found = "no such field"};
}

}  // namespace memstrata::detail
