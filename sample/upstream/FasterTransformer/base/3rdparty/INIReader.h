// Reads INI files: sections, `key = value`, comments with `;` or `#`.
#pragma once

#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

class INIReader {
  public:
    // Throws std::runtime_error when the file can't be read.
    explicit INIReader(const std::string& file) : file_(file)
    {
        std::ifstream stream(file);
        if (!stream) {
            throw std::runtime_error(file + ": can't be read");
        }
        std::string line, section;
        while (std::getline(stream, line)) {
            line = trimmed(line);
            if (line.empty() || line[0] == ';' || line[0] == '#') {
                continue;
            }
            const size_t equals = line.find('=');
            if (line[0] == '[') {
                section = line.substr(1, line.find(']') - 1);
            } else if (equals != std::string::npos) {
                values_[{section, trimmed(line.substr(0, equals))}] = trimmed(line.substr(equals + 1));
            }
        }
    }

    bool HasSection(const std::string& section) const
    {
        const auto next = values_.lower_bound({section, ""});
        return next != values_.end() && next->first.first == section;
    }

    // Throws std::runtime_error when the key is missing.
    std::string Get(const std::string& section, const std::string& key) const
    {
        const auto found = values_.find({section, key});
        if (found == values_.end()) {
            throw std::runtime_error(file_ + ": [" + section + "] lacks " + key);
        }
        return found->second;
    }

    std::string Get(const std::string& section, const std::string& key, const std::string& otherwise) const
    {
        const auto found = values_.find({section, key});
        return found == values_.end() ? otherwise : found->second;
    }

    // Throws std::runtime_error when the key is missing, std::invalid_argument when it is no number.
    int GetInteger(const std::string& section, const std::string& key) const
    {
        return std::stoi(Get(section, key));
    }

    int GetInteger(const std::string& section, const std::string& key, int otherwise) const
    {
        return std::stoi(Get(section, key, std::to_string(otherwise)));
    }

  private:
    static std::string trimmed(const std::string& text)
    {
        const char* blank = " \t\r";
        const size_t first = text.find_first_not_of(blank);
        return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(blank) - first + 1);
    }

    std::string file_;
    std::map<std::pair<std::string, std::string>, std::string> values_;
};
