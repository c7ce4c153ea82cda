// Holds an AsyncAPI document against the published schema of its format: node asyncapi.mjs FOLDER FILE, where FOLDER
// has node_modules with @asyncapi/specs and ajv.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [folder, file] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const Ajv = require("ajv").default;
const schema = require("@asyncapi/specs/schemas/3.0.0-without-$id.json");
const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
ajv.addMetaSchema(require("ajv/dist/refs/json-schema-draft-06.json"));
const validate = ajv.compile(schema);
if (!validate(JSON.parse(readFileSync(file, "utf8")))) {
  for (const error of validate.errors) console.log(`${error.instancePath} ${error.message}`);
  process.exit(1);
}
console.log("OK");
