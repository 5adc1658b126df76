// A small JSON reader: enough for a model configuration.
#pragma once

#include <cctype>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace triton { namespace common {

struct JsonValue {
    enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

    Kind kind = Kind::kNull;
    bool boolean = false;
    double number = 0;
    std::string text;
    std::vector<JsonValue> items;
    std::map<std::string, JsonValue> members;

    // The member named `key`, or null (of kind kNull) where there is none.
    const JsonValue& operator[](const std::string& key) const
    {
        static const JsonValue none;
        const auto found = members.find(key);
        return found == members.end() ? none : found->second;
    }
};

class JsonReader {
  public:
    // Throws std::runtime_error when `text` is not JSON.
    static JsonValue parse(const std::string& text)
    {
        JsonReader reader(text);
        JsonValue value = reader.value();
        reader.space();
        if (reader.at_ != text.size()) {
            reader.fail("end of text");
        }
        return value;
    }

  private:
    explicit JsonReader(const std::string& text) : text_(text) {}

    [[noreturn]] void fail(const std::string& wanted) const
    {
        throw std::runtime_error("JSON: " + wanted + " expected at byte " + std::to_string(at_));
    }

    void space()
    {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) {
            ++at_;
        }
    }

    bool accept(char wanted)
    {
        space();
        if (at_ < text_.size() && text_[at_] == wanted) {
            ++at_;
            return true;
        }
        return false;
    }

    void expect(char wanted)
    {
        if (!accept(wanted)) {
            fail(std::string("'") + wanted + "'");
        }
    }

    bool word(const std::string& wanted)
    {
        if (text_.compare(at_, wanted.size(), wanted) != 0) {
            return false;
        }
        at_ += wanted.size();
        return true;
    }

    JsonValue value()
    {
        JsonValue result;
        space();
        if (accept('{')) {
            result.kind = JsonValue::Kind::kObject;
            while (!accept('}')) {
                if (!result.members.empty()) {
                    expect(',');
                }
                std::string key = string();
                expect(':');
                result.members.emplace(std::move(key), value());
            }
        } else if (accept('[')) {
            result.kind = JsonValue::Kind::kArray;
            while (!accept(']')) {
                if (!result.items.empty()) {
                    expect(',');
                }
                result.items.push_back(value());
            }
        } else if (at_ < text_.size() && text_[at_] == '"') {
            result.kind = JsonValue::Kind::kString;
            result.text = string();
        } else if (word("true")) {
            result.kind = JsonValue::Kind::kBool;
            result.boolean = true;
        } else if (word("false")) {
            result.kind = JsonValue::Kind::kBool;
        } else if (!word("null")) {
            char* end = nullptr;
            result.kind = JsonValue::Kind::kNumber;
            result.number = std::strtod(text_.c_str() + at_, &end);
            if (end == text_.c_str() + at_) {
                fail("a value");
            }
            at_ = static_cast<size_t>(end - text_.c_str());
        }
        return result;
    }

    std::string string()
    {
        expect('"');
        std::string result;
        while (at_ < text_.size() && text_[at_] != '"') {
            char next = text_[at_++];
            if (next == '\\' && at_ < text_.size()) {
                next = text_[at_++];
                if (next == 'u') {  // a configuration holds ASCII
                    next = static_cast<char>(std::strtol(text_.substr(at_, 4).c_str(), nullptr, 16));
                    at_ += 4;
                } else if (next == 'n') {
                    next = '\n';
                } else if (next == 't') {
                    next = '\t';
                }
            }
            result += next;
        }
        expect('"');
        return result;
    }

    const std::string& text_;
    size_t at_ = 0;
};

}}  // namespace triton::common
