#include "src/fastertransformer/layers/DynamicDecodeLayer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fastertransformer {

namespace {

// The tokens, the best first.
std::vector<uint32_t> ranked(const std::vector<float>& logits)
{
    std::vector<uint32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    return order;
}

double logSumExp(const std::vector<float>& logits)
{
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) {
        sum += std::exp(logit - top);
    }
    return top + std::log(sum);
}

}  // namespace

DynamicDecodeLayer::DynamicDecodeLayer(const DecodingParam& param, uint32_t end_id, size_t beam)
    : param_(param), end_id_(end_id), beam_(beam), tokens_(param.context), random_(param.random_seed)
{
}

Choice DynamicDecodeLayer::forward(std::vector<float> logits)
{
    banBadWords(&logits);
    if (param_.temperature != 1) {
        for (float& logit : logits) {
            logit /= param_.temperature + 1e-6f;  // FasterTransformer's way to take a temperature of 0
        }
    }

    const std::vector<uint32_t> order = ranked(logits);
    const double all = logSumExp(logits);
    std::vector<double> probabilities(candidates(order.size()));
    for (size_t place = 0; place < probabilities.size(); ++place) {
        probabilities[place] = std::exp(logits[order[place]] - all);
    }
    const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);

    const uint32_t token = order[param_.beam_width > 1 ? beam_ : draw(probabilities, sum)];
    const double log_prob = logits[token] - all;
    beam_ = 0;
    tokens_.push_back(token);
    finished_ = token == end_id_
                || std::any_of(param_.stop_words.begin(), param_.stop_words.end(),
                               [&](const Word& word) { return endsWith(word, word.size()); });
    return {token, static_cast<float>(log_prob), static_cast<float>(log_prob - std::log(sum))};
}

// Whether the latest tokens are the first `size` ones of `word`.
bool DynamicDecodeLayer::endsWith(const Word& word, size_t size) const
{
    const auto count = static_cast<std::ptrdiff_t>(size);
    return tokens_.size() >= size && std::equal(word.begin(), word.begin() + count, tokens_.end() - count);
}

// FasterTransformer never bans token 0.
void DynamicDecodeLayer::banBadWords(std::vector<float>* logits) const
{
    for (const Word& word : param_.bad_words) {
        const uint32_t last = word.back();
        if (last > 0 && last < logits->size() && endsWith(word, word.size() - 1)) {
            (*logits)[last] = -std::numeric_limits<float>::infinity();
        }
    }
}

// How many of the best tokens are candidates.
size_t DynamicDecodeLayer::candidates(size_t vocab_size) const
{
    if (param_.beam_width > 1 || (param_.top_k == 0 && param_.top_p > 0)) {
        return vocab_size;
    }
    return std::min<size_t>(std::max(param_.top_k, 1u), vocab_size);
}

// The place of a candidate, drawn by its probability out of the first ones that make up top_p of their `sum`.
size_t DynamicDecodeLayer::draw(const std::vector<double>& probabilities, double sum)
{
    const double share = param_.top_p > 0 ? std::min(param_.top_p, 1.0f) : 1.0;
    const double uniform = static_cast<double>(random_() >> 11) / static_cast<double>(uint64_t{1} << 53);
    double rest = uniform * share * sum;
    size_t place = 0;
    while (place + 1 < probabilities.size() && rest > probabilities[place]) {
        rest -= probabilities[place++];
    }
    return place;
}

}  // namespace fastertransformer
