// SPDX-License-Identifier: Apache-2.0
#include "memstrata/core/error/trace_error.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace memstrata {
namespace {

std::string text(const TracePlace& place) {
  return fmt::format("{} line {} (byte {})", place.source.view(), place.line, place.offset.value);
}

std::string_view remedy(TraceDefect defect) {
  switch (defect) {
    case TraceDefect::malformed:
    case TraceDefect::missing_field:
    case TraceDefect::repeated_field:
    case TraceDefect::wrong_type:
    case TraceDefect::not_an_integer:
    case TraceDefect::negative:
    case TraceDefect::too_large:
    case TraceDefect::empty_prompt:
    case TraceDefect::wrong_block_count:
    case TraceDefect::line_too_long:
    case TraceDefect::nested_too_deep:
      return "correct the record, or skip bad records";
    case TraceDefect::time_went_back:
      return "sort the trace by arrival, or skip bad records";
    case TraceDefect::parent_changed:
    case TraceDefect::fill_changed:
      return "an id must stand for one prefix of the prompt; number the blocks again, or skip bad "
             "records";
    case TraceDefect::unterminated_line:
      return "the file may be cut: fetch it again, or end it with a line break if it is whole";
    case TraceDefect::wrong_version:
      return "read the trace with the version of memstrata that wrote it, or make it again";
  }
  std::unreachable();
}

std::string sentence(const BadTraceRecord& error) {
  const std::string field =
      error.field.empty() ? std::string() : fmt::format("{}: ", error.field.view());
  return fmt::format("{}: {}expected {}, found {}; {}",
                     text(error.at),
                     field,
                     error.expected.view(),
                     error.found.view(),
                     remedy(error.defect));
}

std::string sentence(const TraceUnavailable& error) {
  return fmt::format("{} cannot be read: {}: {} (os error {})",
                     error.source.view(),
                     error.call,
                     error.reason.view(),
                     error.code);
}

std::string sentence(const UnknownTraceFormat& error) {
  return fmt::format(
      "{} is no trace: expected JSON lines that begin with '{{', or the header "
      "TIMESTAMP,ContextTokens,GeneratedTokens, or one of both compressed by gzip or zstd; found "
      "{}",
      error.source.view(),
      error.found.view());
}

std::string sentence(const BrokenTraceArchive& error) {
  return fmt::format(
      "{}: the {} archive is damaged after {} bytes of text: {}; fetch the file again",
      error.source.view(),
      error.codec,
      error.offset.value,
      error.reason.view());
}

std::string sentence(const EmptyTrace& error) {
  if (error.skipped == 0) {
    return fmt::format("{} holds no record; expected at least one", error.source.view());
  }
  return fmt::format(
      "{} holds no good record: all {} were bad and skipped; read it without "
      "skipping to see why the first one is bad",
      error.source.view(),
      error.skipped);
}

std::string sentence(const TraceTooLarge& error) {
  return fmt::format(
      "{}: {} after {} different block ids; use a part of the trace, or a machine "
      "with more memory",
      text(error.at),
      error.reason.view(),
      error.distinct_blocks);
}

std::string sentence(const TraceNotWritten& error) {
  return fmt::format("{} could not be written after {} records: {}",
                     error.target.view(),
                     error.records,
                     error.reason.view());
}

}  // namespace

std::string_view to_string(TraceDefect defect) noexcept {
  switch (defect) {
    case TraceDefect::malformed:
      return "malformed";
    case TraceDefect::missing_field:
      return "missing_field";
    case TraceDefect::repeated_field:
      return "repeated_field";
    case TraceDefect::wrong_type:
      return "wrong_type";
    case TraceDefect::not_an_integer:
      return "not_an_integer";
    case TraceDefect::negative:
      return "negative";
    case TraceDefect::too_large:
      return "too_large";
    case TraceDefect::time_went_back:
      return "time_went_back";
    case TraceDefect::empty_prompt:
      return "empty_prompt";
    case TraceDefect::wrong_block_count:
      return "wrong_block_count";
    case TraceDefect::parent_changed:
      return "parent_changed";
    case TraceDefect::fill_changed:
      return "fill_changed";
    case TraceDefect::unterminated_line:
      return "unterminated_line";
    case TraceDefect::line_too_long:
      return "line_too_long";
    case TraceDefect::nested_too_deep:
      return "nested_too_deep";
    case TraceDefect::wrong_version:
      return "wrong_version";
  }
  std::unreachable();
}

std::string TraceError::message() const {
  return std::visit([](const auto& alternative) { return sentence(alternative); }, kind);
}

}  // namespace memstrata
