// JSON Web Tokens by themselves, for `import`.

import jwt from "./jwt.js";

export const { decode, encode, TokenError, TokenKey, TokenSigner, TokenVerifier } = jwt;
export default jwt;
