export default {
  input: process.env.DWELL_DOCUMENT,
  output: { path: "dwell", importFileExtension: ".js" },
  plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
};
