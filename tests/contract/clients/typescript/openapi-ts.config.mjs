export default {
  input: process.env.CONTRACT_DOCUMENT,
  output: { path: "dwell", importFileExtension: ".js" },
  plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
};
