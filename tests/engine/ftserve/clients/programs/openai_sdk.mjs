// OpenAI's own SDK for Node.
import OpenAI from "openai";

const [url, model, prompt, length] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
const asked = { model, max_tokens: Number(length), temperature: 0 };
const messages = [{ role: "user", content: prompt }];

const together = async (stream, text) => {
  let whole = "";
  for await (const part of await stream) whole += text(part.choices[0]) ?? "";
  return whole;
};
const first = (await client.chat.completions.create({ messages, ...asked })).choices[0].message;
const turns = [...messages, first, ...messages];
const answers = {
  completion: (await client.completions.create({ prompt, ...asked })).choices[0].text,
  "streamed completion": await together(
    client.completions.create({ prompt, stream: true, ...asked }), (choice) => choice.text),
  chat: first.content,
  "streamed chat": await together(
    client.chat.completions.create({ messages, stream: true, ...asked }), (choice) => choice.delta.content),
  "second turn": (await client.chat.completions.create({ messages: turns, ...asked })).choices[0].message.content,
};
console.log(JSON.stringify(answers));
