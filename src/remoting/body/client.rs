//! Bodies about clients: consumer list, connections.
