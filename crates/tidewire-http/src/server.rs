//! The server side: requests as a server reads them, responses as it writes them.
