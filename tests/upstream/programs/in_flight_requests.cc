// Requests that come at any time get what they get alone, by the header that patches/backend/0250 adds.
//
// The batch here answers as a function of a row's own prompt, settings and tokens, so a row that is taken for another
// shows. It checks what it is asked: indices that are there, in order, no more rows than slots, and that no row writes into
// a range of the cache that is another's. Now and then it fails: then all rows that are there are answered with an error, and the next ones are right again. With
// SERVER_CANCELS the server tells of cancelled requests, as those from 23.10 on do. All of it twice: with prompts that
// answers go on, and with prompts that an encoder reads (patches/backend/0260).
//
//     in_flight_requests SEED COUNT

#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>

#include "in_flight_requests.h"
#include "in_flight_server.h"

using namespace triton::backend::fastertransformer_backend;

constexpr int kEnd = 7, kStart = 3;
constexpr size_t kSlots = 6, kSlotTokens = 24;
// Of all rows: some of the longest do not fit beside each other.
constexpr size_t kCacheTokens = 90;

// The next token of a row, by nothing but the row.
int Next(const ft::InFlightRow& row, const std::vector<int>& made)
{
    uint64_t hash = 1469598103934665603ULL + row.random_seed + row.top_k + 31 * row.start_id;
    for (const auto* part : {&row.prompt, &made}) {
        for (const int token : *part) {
            hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211ULL;
        }
    }
    return static_cast<int>((hash >> 33) % 23);
}

bool Ends(const ft::InFlightRow& row, const int token)
{
    return token == row.end_id || std::count(row.stop_words.begin(), row.stop_words.end(), token) > 0;
}

class Batch: public ft::InFlightBatch {
 public:
  Batch(const unsigned seed, const bool fails, const bool encodes) : random_(seed), fails_(fails), encodes_(encodes) {}

  std::vector<ft::InFlightToken> step(
      const std::vector<size_t>& leaving, const std::vector<ft::InFlightRow>& joining, const bool ahead) override
  {
    Require(!is_ahead_ || (leaving.empty() && joining.empty()), "rows stay while their next step is computed");
    Require(std::is_sorted(leaving.begin(), leaving.end()), "rows leave in order");
    for (auto left = leaving.rbegin(); left != leaving.rend(); ++left) {
      Require(*left < rows_.size(), "only rows that are there leave");
      rows_[*left] = rows_.back();
      rows_.pop_back();
    }
    for (const auto& row : joining) {
      rows_.push_back({row, {}, ++last_stamp_});
      for (size_t token = 0; token < Before(row); ++token) {
        Write(rows_.back(), token);
      }
    }
    Require(rows_.size() <= kSlots, "no more rows than slots");
    largest_ = std::max(largest_, rows_.size());
    if (fails_ && random_() % 50 == 0) {
      throw std::runtime_error("no memory");
    }
    const std::vector<ft::InFlightToken> tokens = is_ahead_ ? next_ : Compute();
    is_ahead_ = ahead;
    if (ahead) {
      next_ = Compute();
      ++ahead_steps_;
    }
    return tokens;
  }
  void clear() override
  {
    rows_.clear();
    is_ahead_ = false;
  }
  size_t slots() const override { return kSlots; }
  size_t cacheTokens() const override { return kCacheTokens; }
  size_t tokensOf(const ft::InFlightRow& row, const size_t answer) const override
  {
    return std::min(Before(row) + answer + 2, kSlotTokens);
  }
  int endId() const override { return kEnd; }
  int startId() const override { return encodes_ ? kStart : -1; }
  size_t Largest() const { return largest_; }
  size_t AheadSteps() const { return ahead_steps_; }

 private:
  struct Row {
    ft::InFlightRow settings;
    std::vector<int> made;
    size_t stamp;
  };

  // The tokens that an answer follows.
  size_t Before(const ft::InFlightRow& row) const { return encodes_ ? 1 : row.prompt.size(); }

  void Write(const Row& row, const size_t token)
  {
    Require(token < row.settings.cache_tokens, "a row stays within its range");
    cells_.at(row.settings.cache_first + token) = row.stamp;
  }

  // The keys and values of a token are computed with the next one.
  std::vector<ft::InFlightToken> Compute()
  {
    std::vector<ft::InFlightToken> tokens;
    for (auto& row : rows_) {
      const size_t there = Before(row.settings) + row.made.size();
      Write(row, there - 1);
      const auto first = cells_.begin() + row.settings.cache_first;
      Require(std::count(first, first + there, row.stamp) == static_cast<int>(there), "a row's range is its own");
      const int next = Next(row.settings, row.made);
      row.made.push_back(next);
      tokens.push_back({next, Ends(row.settings, next)});
    }
    return tokens;
  }

  std::mt19937 random_;
  const bool fails_, encodes_;
  size_t largest_ = 0;
  size_t ahead_steps_ = 0;
  bool is_ahead_ = false;
  std::vector<ft::InFlightToken> next_;
  std::vector<Row> rows_;
  size_t last_stamp_ = 0;
  std::vector<size_t> cells_ = std::vector<size_t>(kCacheTokens);
};

template <typename V>
RequestInput Input(const TRITONSERVER_DataType type, const std::vector<int64_t>& shape, const std::vector<V>& values)
{
    const char* bytes = reinterpret_cast<const char*>(values.data());
    return {type, shape, std::vector<char>(bytes, bytes + values.size() * sizeof(V))};
}

struct Question {
    explicit Question(const bool is_encoded) : encoded(is_encoded) {}

    const bool encoded;
    std::unique_ptr<TRITONBACKEND_Request> request{new TRITONBACKEND_Request};
    RequestInputs inputs;
    std::vector<ft::InFlightRow> rows;
    std::vector<uint32_t> wanted;
};

Question Draw(std::mt19937* random, const bool encoded)
{
    const auto below = [random](const int most) { return static_cast<int>((*random)() % most); };
    Question made(encoded);
    const int64_t rows = 1 + below(3);
    const int64_t length = 1 + below(8);
    std::vector<uint32_t> ids, lengths, top_k;
    std::vector<uint64_t> seeds;
    for (int64_t row = 0; row < rows; ++row) {
        lengths.push_back(1 + below(static_cast<int>(length)));
        for (int64_t i = 0; i < length; ++i) {
            ids.push_back(below(20));
        }
        // With an encoder, all rows want as many, and half of a slot is the answer's.
        made.wanted.push_back(encoded && row > 0 ? made.wanted[0] : 1 + below(encoded ? kSlotTokens / 2 : 16));
        top_k.push_back(below(4));
        seeds.push_back(below(1000));
    }
    made.inputs["input_ids"] = Input(TRITONSERVER_TYPE_UINT32, {rows, length}, ids);
    made.inputs[encoded ? "sequence_length" : "input_lengths"] = Input(TRITONSERVER_TYPE_UINT32, {rows, 1}, lengths);
    made.inputs[encoded ? "max_output_len" : "request_output_len"] =
        Input(TRITONSERVER_TYPE_UINT32, {rows, 1}, made.wanted);
    if (encoded && below(2)) {
        made.inputs["start_id"] = Input(TRITONSERVER_TYPE_UINT32, {rows, 1}, lengths);
    }
    if (below(2)) {
        made.inputs["runtime_top_k"] = Input(TRITONSERVER_TYPE_UINT32, {rows, 1}, top_k);
        made.inputs["random_seed"] = Input(TRITONSERVER_TYPE_UINT64, {rows, 1}, seeds);
    }
    if (below(3) == 0) {
        std::vector<int32_t> words;
        for (int64_t row = 0; row < rows; ++row) {
            words.insert(words.end(), {below(20), below(20), 1, 2});
        }
        made.inputs["stop_words_list"] = Input(TRITONSERVER_TYPE_INT32, {rows, 2, 2}, words);
    }
    return made;
}

// What a request gets alone: tokens behind each prompt, and end_id where nothing is. Of prompts that are encoded: tokens,
// end_id while other rows have more, then 0.
bool IsRight(const Question& asked, const Sent& answer)
{
    const auto& ids = answer.outputs.at("output_ids");
    const auto& lengths = answer.outputs.at("sequence_length");
    const size_t rows = asked.rows.size();
    const size_t input = asked.encoded ? 0 : asked.inputs.at("input_ids").shape[1];
    const size_t total = input + *std::max_element(asked.wanted.begin(), asked.wanted.end());
    if (ids.first != std::vector<int64_t>{static_cast<int64_t>(rows), 1, static_cast<int64_t>(total)}) {
        return false;
    }
    std::vector<std::vector<int>> answers;
    size_t longest = 0;
    for (size_t r = 0; r < rows; ++r) {
        std::vector<int> made;
        do {
            made.push_back(Next(asked.rows[r], made));
        } while (made.size() < asked.wanted[r] && !Ends(asked.rows[r], made.back()));
        longest = std::max(longest, made.size());
        answers.push_back(made);
    }
    for (size_t r = 0; r < rows; ++r) {
        const auto& row = asked.rows[r];
        std::vector<int> all;
        if (!asked.encoded) {
            all = row.prompt;
        }
        all.insert(all.end(), answers[r].begin(), answers[r].end());
        all.resize(asked.encoded ? longest : total, row.end_id);
        all.resize(total, 0);
        const uint32_t length = static_cast<uint32_t>(input + answers[r].size());
        if (std::memcmp(all.data(), ids.second.data() + r * total * sizeof(int), total * sizeof(int)) != 0 ||
            std::memcmp(&length, lengths.second.data() + r * sizeof(length), sizeof(length)) != 0) {
            return false;
        }
    }
    return true;
}

bool Takes(const Question& asked)
{
    Batch batch(0, false, asked.encoded);
    InFlightRequests requests(nullptr, {&batch}, 0, kSlots, kSlotTokens, false, 60);
    std::vector<ft::InFlightRow> rows;
    return requests.Takes(BatchMember(AcceptedRequest{asked.request.get(), asked.inputs}), &rows);
}

// A request of one row with `length` tokens of prompt that wants so many.
Question Plain(const bool encoded, const uint32_t length, const uint32_t wanted)
{
    Question made(encoded);
    made.inputs["input_ids"] = Input(TRITONSERVER_TYPE_UINT32, {1, length}, std::vector<uint32_t>(length, 5));
    made.inputs[encoded ? "sequence_length" : "input_lengths"] =
        Input(TRITONSERVER_TYPE_UINT32, {1, 1}, std::vector<uint32_t>{length});
    made.inputs[encoded ? "max_output_len" : "request_output_len"] =
        Input(TRITONSERVER_TYPE_UINT32, {1, 1}, std::vector<uint32_t>{wanted});
    return made;
}

// Of what does not join, by what it would need of a slot and by its words.
void CheckWhoJoins()
{
    constexpr uint32_t half = kSlotTokens / 2;
    Require(Takes(Plain(false, half + 1, half - 1)), "prompt and answer fill a slot");
    Require(!Takes(Plain(false, half + 1, half)), "prompt and answer need more than a slot");
    Require(Takes(Plain(true, half, half)), "prompt and answer fill their halves");
    Require(!Takes(Plain(true, half + 1, 1)), "a prompt needs more than its half");
    Require(!Takes(Plain(true, 1, half + 1)), "an answer needs more than its half");

    const auto with_word = [](const bool encoded, const std::vector<int32_t>& word) {
        Question asked = Plain(encoded, 2, 4);
        std::vector<int32_t> words = word;
        words.push_back(static_cast<int32_t>(word.size()));
        words.resize(2 * word.size(), -1);
        const auto size = static_cast<int64_t>(word.size());
        asked.inputs["stop_words_list"] = Input(TRITONSERVER_TYPE_INT32, {1, 2, size}, words);
        return Takes(asked);
    };
    Require(with_word(false, {1, 2}), "a word as long as the prompt");
    Require(!with_word(false, {1, 2, 4}), "a word that could begin before the prompt");
    Require(with_word(true, {1, 2, 4}), "a word that cannot begin before the answer");
    Require(with_word(true, {kStart, 2, 4}), "a word that begins with the answer's start");
    Require(!with_word(true, {kStart, kStart, 4}), "a word that could begin before the answer's start");

    Question uneven = Plain(true, 2, 4);
    uneven.inputs["input_ids"] = Input(TRITONSERVER_TYPE_UINT32, {2, 1}, std::vector<uint32_t>{5, 6});
    uneven.inputs["sequence_length"] = Input(TRITONSERVER_TYPE_UINT32, {2, 1}, std::vector<uint32_t>{1, 1});
    uneven.inputs["max_output_len"] = Input(TRITONSERVER_TYPE_UINT32, {2, 1}, std::vector<uint32_t>{4, 5});
    Require(!Takes(uneven), "FasterTransformer reads the first row's max_output_len");
}

// Ranges are taken where they fit first, and become one again with their neighbours.
void CheckRanges()
{
    CacheRanges ranges(10);
    size_t first[4];
    Require(!CacheRanges(0).Take(1, first), "no tokens");
    Require(!ranges.Take(11, first) && ranges.Take(4, &first[0]) && ranges.Take(3, &first[1]) && ranges.Take(3, &first[2]),
            "all are taken");
    Require(first[0] == 0 && first[1] == 4 && first[2] == 7 && !ranges.Take(1, &first[3]), "one behind the other");
    ranges.GiveBack(0, 4);
    ranges.GiveBack(7, 3);
    Require(!ranges.Take(5, &first[3]), "seven are free, but no five of them together");
    ranges.GiveBack(4, 3);
    Require(ranges.Take(10, &first[3]) && first[3] == 0, "all are one again");
}

struct Counts {
    size_t right = 0, failed = 0, left = 0, parts = 0, largest = 0;
};

void Try(std::mt19937* random, const int count, const bool encoded, const bool decoupled, const bool fails, Counts* counts)
{
    Batch batch((*random)(), fails, encoded);
    std::deque<Question> asked;
    {
        InFlightRequests requests(nullptr, {&batch}, 0, kSlots, kSlotTokens, decoupled, 60);
        for (int i = 0; i < count; ++i) {
            asked.push_back(Draw(random, encoded));
            Question& question = asked.back();
            BatchMember member(AcceptedRequest{question.request.get(), question.inputs});
            Require(requests.Takes(member, &question.rows), "these are rows");
            auto rows = question.rows;
            requests.Add(std::move(member), std::move(rows));
            if ((*random)() % 5 == 0) {
                asked[(*random)() % asked.size()].request->cancelled = true;
            }
            if ((*random)() % 3 == 0) {
                requests.WaitForRoom();
            }
        }
    }
    for (const Question& question : asked) {
        Require(question.request->released, "each request is answered, and released");
        const Sent& last = question.request->answers.back();
        counts->parts += question.request->answers.size();
        Require(decoupled || question.request->answers.size() == 1, "one answer without a stream");
        if (last.error.empty()) {
            Require(IsRight(question, last), "an answer is not the one alone");
            ++counts->right;
        } else if (question.request->cancelled && last.error == "the request was cancelled") {
            ++counts->left;
        } else {
            Require(fails, "an error without a cause");
            ++counts->failed;
        }
    }
    counts->largest = std::max(counts->largest, batch.Largest());
    Require(batch.AheadSteps() > 0, "a step is computed while the one before it is dealt with");
}

int main(int, char** arguments)
{
    std::mt19937 random(static_cast<unsigned>(std::atoi(arguments[1])));
    const int count = std::atoi(arguments[2]);
    CheckWhoJoins();
    CheckRanges();
    Counts counts;
    for (const bool encoded : {false, true}) {
        for (const bool decoupled : {false, true}) {
            for (const bool fails : {false, true}) {
                Try(&random, count, encoded, decoupled, fails, &counts);
            }
        }
    }
    std::cout << counts.right << " " << counts.failed << " " << counts.left << " " << counts.parts << " "
              << counts.largest << "\n";
    return 0;
}
